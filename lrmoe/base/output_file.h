// A file that is written: every failure is an exception that names the path and
// the reason. Paths a user got wrong (no such folder, no permission) are an
// InputError, everything else (a full disk) a RunError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lrmoe {

class OutputFile {
 public:
  enum class Mode { truncate, append };
  /// `shown`: the name that messages use, when it is not the path.
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::truncate,
                      const std::filesystem::path& shown = {});
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// At a place of the file, wherever the next write() goes; not in append mode.
  void write_at(std::uint64_t at, std::span<const std::byte> bytes);
  /// Has the disk hold what was written.
  void sync();
  void close();

 private:
  std::filesystem::path shown_;
  int descriptor_ = -1;
};

/// Has the disk hold a folder's entries, or a file's bytes.
void sync_path(const std::filesystem::path& path);

/// Throws as stated above; `error` is an errno value.
[[noreturn]] void throw_file_error(const std::string& doing, const std::filesystem::path& path,
                                   int error);

/// The whole file. InputError that names the path and the reason.
std::string read_text(const std::filesystem::path& path);

}  // namespace lrmoe
