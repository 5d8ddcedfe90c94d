#include "lrmoe/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto fail = [&path](const std::string& why) {
    return InputError("cannot read " + quote(path.string()) + ": " + why);
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw fail(std::strerror(errno));
  }
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = nullptr;
  if (known && S_ISREG(status.st_mode) && size > 0) {
    start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (!known || start == MAP_FAILED) {
    throw fail(std::strerror(error));
  }
  if (!S_ISREG(status.st_mode)) {
    throw fail("it is no regular file");
  }
  if (start != nullptr) {
    bytes_ = {static_cast<const std::byte*>(start), size};
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void forget(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
}

}  // namespace lrmoe
