// A file's bytes, mapped into memory for reading.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lrmoe {

class MappedFile {
 public:
  /// InputError that names the path and the reason.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// The mapped pages that lie within `bytes` may leave memory; when they are looked
/// at again, the file is read again.
void forget(std::span<const std::byte> bytes);

}  // namespace lrmoe
