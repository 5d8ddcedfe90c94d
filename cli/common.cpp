#include <array>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cli {

void add_json_option(CLI::App& command, std::string& file) {
  command.add_option("--json", file, "Write the result as JSON to FILE ('-': standard output)")
      ->type_name("FILE");
}

void check_json(const std::string& file) {
  namespace fs = std::filesystem;
  if (file.empty() || file == "-") {
    return;
  }
  const fs::path path(file);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw InputError("--json " + quote(file) + ": that is a folder; name a file");
  }
  if (!fs::is_directory(folder, ignored)) {
    throw InputError("--json " + quote(file) + ": there is no folder " + quote(folder.string()));
  }
}

void write_json(const std::string& file, const std::string& document) {
  if (file == "-") {
    std::cout << document << std::flush;
  } else if (!file.empty()) {
    write_file(file, document);
  }
}

void show(const std::string& json_file, const std::string& text) {
  (json_file == "-" ? std::cerr : std::cout) << text << std::flush;
}

std::string new_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local);
  const std::string first = "runs/" + name + "-" + stamp.data();
  std::string path = first;
  for (int i = 2; std::filesystem::exists(path); ++i) {
    path = first + "-" + std::to_string(i);
  }
  return path;
}

}  // namespace lrmoe::cli
