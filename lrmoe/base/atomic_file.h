// Files and folders that are there whole or not at all: written under a
// temporary name beside the old one, synced, then renamed. A crash or a full
// disk leaves the old one as it was.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lrmoe/base/output_file.h"

namespace lrmoe {

/// Errors: see OutputFile. What is not committed is removed. A target that is
/// no regular file (a device, a pipe) is written straight.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes) { file_->write(bytes); }
  void write(std::string_view text) { file_->write(text); }
  void write_at(std::uint64_t at, std::span<const std::byte> bytes) { file_->write_at(at, bytes); }
  void sync() { file_->sync(); }
  /// Puts what was written in the target's place at once; writing goes on there.
  void publish();
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty: the target is written straight
  std::optional<OutputFile> file_;
};

/// `contents` as the whole file.
void write_file(const std::filesystem::path& path, std::string_view contents);

/// A folder under construction: write into path(), then commit().
class AtomicFolder {
 public:
  /// Makes the empty folder `.NAME.partial` beside the target; a left-over of a
  /// crash is removed first.
  explicit AtomicFolder(const std::filesystem::path& target);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  /// Syncs all files in the folder and puts it in the target's place.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

}  // namespace lrmoe
