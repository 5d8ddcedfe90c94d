// The safetensors format: 8 bytes with the header's length (little endian), a
// JSON header, then the tensors' bytes. Read strictly: whatever is wrong with a
// file is an InputError of one line that names the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/base/atomic_file.h"

namespace lrmoe::safetensors {

using Metadata = std::map<std::string, std::string>;

struct Tensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row-major; may be unaligned in a file

  std::int64_t elements() const;
};

/// Bytes of one element; 0 for a name that the format does not have.
std::size_t size_of(std::string_view dtype);

/// A file, mapped into memory: the spans live as long as the reader or a copy of it.
class Reader {
 public:
  /// Checks the whole header: its length and JSON, every name once, dtype, shape
  /// and offsets; the tensors cover the data without gap or overlap.
  explicit Reader(const std::filesystem::path& path);
  /// A file's bytes, which outlive the reader; `name` stands in messages.
  Reader(std::span<const std::byte> file, const std::string& name);

  /// In the order of their bytes.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  const std::string& name() const { return name_; }

  /// Null when there is none.
  const Tensor* find(std::string_view name) const;
  /// InputError that suggests the nearest name when there is none.
  const Tensor& at(std::string_view name) const;

 private:
  void parse(std::span<const std::byte> file);

  std::string name_;  // of the file, as messages show it
  std::shared_ptr<const void> mapping_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  Metadata metadata_;
};

/// Writes a file piece by piece; it appears whole at commit(). Errors: see OutputFile.
class Writer {
 public:
  /// `tensors`: all of the file, in its order; their bytes are not looked at.
  Writer(const std::filesystem::path& path, std::span<const Tensor> tensors,
         const Metadata& metadata = {});

  /// The next bytes of the data, in any portions.
  void append(std::span<const std::byte> bytes);
  void commit();

 private:
  AtomicFile file_;
  std::uint64_t left_ = 0;
};

/// All in one go; the tensors' bytes are written.
void write(const std::filesystem::path& path, std::span<const Tensor> tensors,
           const Metadata& metadata = {});

}  // namespace lrmoe::safetensors
