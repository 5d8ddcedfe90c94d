#include "lrmoe/train/data_files.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kIdExtensions = {".npy", ".bin", ".jsonl"};

DataKind kind_of(const fs::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".npy"     ? DataKind::npy
         : extension == ".bin"   ? DataKind::bin
         : extension == ".jsonl" ? DataKind::json_lines
                                 : DataKind::text;
}

std::vector<fs::path> list_files(const fs::path& path) {
  if (!fs::is_directory(path)) {
    if (fs::exists(path) && !fs::is_regular_file(path)) {
      throw InputError("data.path = " + quote(path.string()) +
                       ": neither a file nor a folder; it takes a text file or a folder of them");
    }
    return {path};
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  // What `python -m lrmoe.tokenize` writes beside its ids is no data.
  std::erase_if(files, [](const fs::path& file) {
    return file.extension() == ".json" &&
           std::any_of(kIdExtensions.begin(), kIdExtensions.end(), [&](const char* extension) {
             return fs::exists(fs::path(file).replace_extension(extension));
           });
  });
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

}  // namespace

std::vector<fs::path> data_files(const std::string& path) {
  if (path.empty()) {
    throw InputError(
        "data.path is missing; name a text file, token ids (.npy, .bin), JSON lines "
        "(.jsonl) or a folder of them");
  }
  std::vector<fs::path> files;
  try {
    files = list_files(path);
  } catch (const fs::filesystem_error& error) {
    throw InputError("data.path = " + quote(path) + ": cannot read " +
                     quote(error.path1().string()) + ": " + error.code().message());
  }
  if (files.empty()) {
    throw InputError("data.path = " + quote(path) +
                     ": the folder holds no file; it takes one text file or more");
  }
  return files;
}

DataKind data_kind(const std::string& path, const std::vector<fs::path>& files) {
  const DataKind kind = kind_of(files.front());
  for (const fs::path& file : files) {
    if (kind_of(file) != kind) {
      throw InputError("data.path = " + quote(path) + ": " + quote(files.front().string()) +
                       " and " + quote(file.string()) +
                       " are of different kinds; a folder holds text, .npy, .bin or .jsonl files, "
                       "one kind of them");
    }
  }
  return kind;
}

}  // namespace lrmoe::train
