// Token ids in memory as a file has them: integers of 1, 2, 4 or 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lrmoe::train {

/// Ids of one file, mapped into memory: a copy shares the mapping.
class IdArray {
 public:
  /// A .npy file; shape() has one or two extents.
  static IdArray from_npy(const std::filesystem::path& path);
  /// Raw little-endian unsigned integers of `bytes_each`: one extent.
  static IdArray from_raw(const std::filesystem::path& path, int bytes_each);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::size_t size() const { return bytes_.size() / width_; }
  const std::string& name() const { return name_; }

  /// Ids [begin, begin + count), after those of `out`.
  void append(std::size_t begin, std::size_t count, std::vector<std::int64_t>& out) const;

  /// InputError that names the first id outside [0, vocabulary). Reads the whole array.
  void check(int vocabulary) const;

 private:
  IdArray() = default;

  std::string name_;
  std::shared_ptr<const void> file_;
  std::span<const std::byte> bytes_;
  std::vector<std::int64_t> shape_;
  std::size_t width_ = 1;
  bool is_signed_ = false;
};

/// The message of an id outside the vocabulary. `where`: "file 'x', position 3".
[[noreturn]] void refuse_id(const std::string& where, const std::string& id, int vocabulary);

}  // namespace lrmoe::train
