// Writes a trace step by step, without holding it in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

struct WriterOptions {
  /// The file stands under its name from the first whole step on, and is a whole
  /// trace after every step; else it appears at commit().
  bool live = false;
  /// Room is kept in the header for these tensors of every layer.
  bool sources = true;
  bool scores = true;
};

class Writer;

/// Opens the trace that an earlier run recorded, keeps its first `steps` steps and
/// goes on behind them. InputError where the file holds fewer, or another model's.
std::unique_ptr<Writer> resume(const std::filesystem::path& path, const Info& info, int steps,
                               const WriterOptions& options);

class Writer {
 public:
  /// `info.steps`: the most steps that will come. Errors: see OutputFile; InputError
  /// where the header would pass the format's 100 MB.
  Writer(const std::filesystem::path& path, const Info& info, const WriterOptions& options = {});

  /// The next layer, step by step; ids are written in the smallest type, gates as F32.
  void append(const Routing& routing);
  /// The disk holds every whole step (and, when live, so does the file).
  void flush();
  /// After a whole step; where there is none, there is no file.
  void commit();

  int steps() const { return steps_; }

 private:
  friend std::unique_ptr<Writer> resume(const std::filesystem::path&, const Info&, int,
                                        const WriterOptions&);
  void add_tensor(const std::string& name, const std::string& dtype,
                  const std::vector<std::int64_t>& shape, std::uint64_t bytes);
  void write_data();
  void write_header();

  Info info_;
  WriterOptions options_;
  std::string name_;
  AtomicFile file_;
  std::uint64_t room_ = 0;    // bytes of the header
  std::uint64_t data_ = 0;    // bytes of the data, those in `pending_` included
  std::uint64_t header_ = 0;  // bytes of the header's entries that are in the file
  std::string entries_;       // of the layers not yet in the file
  std::vector<std::byte> pending_;
  std::uint64_t spilled_ = 0;  // bytes of the data in the file
  int layer_ = 0;              // of the next append
  int steps_ = 0;              // whole ones
};

/// All of it in one go.
void write(const std::filesystem::path& path, const Trace& trace);

}  // namespace lrmoe::trace
