#include "lrmoe/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe {
namespace {

/// A descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : value_(::open(path.c_str(), flags)) {}
  ~Descriptor() {
    if (value_ >= 0) {
      ::close(value_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

bool is_users_mistake(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
    case ELOOP:
    case EEXIST:
      return true;
    default:
      return false;
  }
}

}  // namespace

void throw_file_error(const std::string& doing, const std::filesystem::path& path, int error) {
  const std::string message =
      "cannot " + doing + " " + quote(path.string()) + ": " + std::strerror(error);
  if (is_users_mistake(error)) {
    throw InputError(message);
  }
  throw RunError(message);
}

OutputFile::OutputFile(const std::filesystem::path& path, Mode mode,
                       const std::filesystem::path& shown)
    : shown_(shown.empty() ? path : shown) {
  const int how = mode == Mode::append ? O_APPEND : O_TRUNC;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
  if (descriptor_ < 0) {
    throw_file_error("write", shown_, errno);
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : shown_(std::move(other.shown_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  LRMOE_ASSERT(descriptor_ >= 0, "write to a closed file " + shown_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      throw_file_error("write", shown_, written == 0 ? EIO : errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void OutputFile::write_at(std::uint64_t at, std::span<const std::byte> bytes) {
  LRMOE_ASSERT(descriptor_ >= 0, "write to a closed file " + shown_.string());
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      throw_file_error("write", shown_, written == 0 ? EIO : errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    at += static_cast<std::uint64_t>(written);
  }
}

void OutputFile::sync() {
  // Pipes and devices cannot be synced (EINVAL); they hold nothing to lose.
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    throw_file_error("write", shown_, errno);
  }
}

void OutputFile::close() {
  if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0) {
    throw_file_error("write", shown_, errno);
  }
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor descriptor(path, O_RDONLY | O_CLOEXEC);
  if (descriptor.value() < 0 || (::fsync(descriptor.value()) != 0 && errno != EINVAL)) {
    throw_file_error("write", path, errno);
  }
}

std::string read_text(const std::filesystem::path& path) {
  const auto fail = [&](int error) -> InputError {
    return InputError("cannot read " + quote(path.string()) + ": " + std::strerror(error));
  };
  const Descriptor descriptor(path, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor.value() < 0 || ::fstat(descriptor.value(), &status) != 0) {
    throw fail(errno);
  }
  std::string text;
  if (S_ISREG(status.st_mode)) {
    text.reserve(static_cast<std::size_t>(status.st_size));
  }
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(descriptor.value(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw fail(errno);
    }
    if (got == 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace lrmoe
