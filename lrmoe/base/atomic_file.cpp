#include "lrmoe/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace lrmoe {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path partial_name(const fs::path& target) {
  return folder_of(target) / ("." + target.filename().string() + ".partial");
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw_file_error("write", to, errno);
  }
}

/// Where a symbolic link leads, so that the link itself stays.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real;
}

void sync_tree(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() || entry.is_directory()) {
      sync_path(entry.path());
    }
  }
  sync_path(folder);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : target_(resolved(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (fs::is_directory(status)) {
    throw_file_error("write", target_, EISDIR);
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    file_.emplace(target_);
    return;
  }
  temporary_ = partial_name(target_);
  file_.emplace(temporary_, OutputFile::Mode::truncate, target_);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) {
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }
}

void AtomicFile::publish() {
  if (temporary_.empty()) {
    return;
  }
  rename_path(temporary_, target_);
  temporary_.clear();
  sync_path(folder_of(target_));
}

void AtomicFile::commit() {
  file_->sync();
  file_->close();
  publish();
}

void write_file(const fs::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

AtomicFolder::AtomicFolder(const fs::path& target)
    : target_(target.has_filename() ? target : target.parent_path()),
      temporary_(partial_name(target_)) {
  std::error_code error;
  fs::remove_all(temporary_, error);
  fs::create_directory(temporary_, error);
  if (error) {
    throw_file_error("make", target_, error.value());
  }
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

void AtomicFolder::commit() {
  sync_tree(temporary_);
  std::error_code ignored;
  if (!fs::exists(target_, ignored)) {
    rename_path(temporary_, target_);
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(),
                         RENAME_EXCHANGE) == 0) {
    fs::remove_all(temporary_, ignored);  // now the old one
  } else {
    // Not every file system can swap two names; here a crash may leave the old one as `.old`.
    const fs::path old = temporary_.string() + ".old";
    fs::remove_all(old, ignored);
    rename_path(target_, old);
    rename_path(temporary_, target_);
    fs::remove_all(old, ignored);
  }
  committed_ = true;
  sync_path(folder_of(target_));
}

}  // namespace lrmoe
