// NumPy's .npy files, versions 1 to 3: a magic string, a header that is a Python
// dictionary, then the values. Read strictly: whatever is wrong with a file is an
// InputError of one line that names the file and what would be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/mapped_file.h"

namespace lrmoe::npy {

/// An array in a file, mapped into memory: row-major (C order).
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path);

  /// As NumPy writes it: "<i4", "|u1", "<f4".
  const std::string& dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// The values of an array of integers of 1, 2, 4 or 8 bytes, signed or not.
  /// InputError for any other dtype, and for values above 2^63 - 1.
  std::vector<std::int64_t> integers() const;

 private:
  std::string where_;  // "'x.npy': "
  MappedFile file_;
  std::string dtype_;
  std::vector<std::int64_t> shape_;
  std::span<const std::byte> bytes_;
};

/// Writes a file piece by piece; it appears whole at commit(). Errors: see OutputFile.
class Writer {
 public:
  /// `dtype`: "<f4", ...; its size in bytes is the number at its end.
  Writer(const std::filesystem::path& path, const std::string& dtype,
         const std::vector<std::int64_t>& shape);

  /// The next bytes of the data, row-major, in any portions.
  void append(std::span<const std::byte> bytes);
  void commit();

 private:
  AtomicFile file_;
  std::uint64_t left_ = 0;
};

}  // namespace lrmoe::npy
