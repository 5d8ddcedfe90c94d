// Real text for tests that train: Perl's own manual where it is installed, else
// generated sentences.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lrmoe/base/output_file.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train::testing_runs {

/// Writes a text of at least half a megabyte to `folder`/real.txt; its path.
inline std::string real_text(const TemporaryFolder& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> pages;
  std::error_code error;
  for (const fs::directory_entry& version : fs::directory_iterator("/usr/share/perl", error)) {
    // A version and a link to it: the pages of one are enough.
    if (version.is_symlink() || !fs::is_directory(version.path() / "pod")) {
      continue;
    }
    for (const fs::directory_entry& page : fs::directory_iterator(version.path() / "pod")) {
      if (page.path().extension() == ".pod") {
        pages.push_back(page.path());
      }
    }
  }
  std::sort(pages.begin(), pages.end());
  std::string text;
  for (const fs::path& page : pages) {
    text += read_text(page);
  }
  if (text.size() < 500000) {
    text = sentences(1000000);
  }
  std::string path = folder / "real.txt";
  std::ofstream(path) << text;
  return path;
}

}  // namespace lrmoe::train::testing_runs
