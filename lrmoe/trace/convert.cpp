#include "lrmoe/trace/convert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/base/mapped_file.h"
#include "lrmoe/base/names.h"

namespace lrmoe::trace {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The last number in a name, without leading zeros; "" where there is none.
std::string last_number(const std::string& name) {
  auto end = name.size();
  while (end > 0 && !is_digit(name[end - 1])) {
    --end;
  }
  auto begin = end;
  while (begin > 0 && is_digit(name[begin - 1])) {
    --begin;
  }
  const std::string digits = name.substr(begin, end - begin);
  const std::size_t first = digits.find_first_not_of('0');
  return digits.empty() || first != std::string::npos
             ? digits.substr(std::min(first, digits.size()))
             : "0";
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Trace convert_file(const fs::path& path, const ConvertOptions& options) {
  const MappedFile file(path);
  const std::string_view text = text_of(file);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    return from_json_lines(text, path.string(), options);
  }
  return from_table(text, path.string(), options);
}

/// Files that are tables, in the order of their numbers.
std::vector<fs::path> tables_in(const fs::path& folder) {
  std::vector<fs::path> tables;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string end = entry.path().extension().string();
    if (entry.is_regular_file() && (end == ".txt" || end == ".csv" || end == ".tsv")) {
      tables.push_back(entry.path());
    }
  }
  const auto key = [](const fs::path& path) {
    const std::string number = last_number(path.stem().string());
    return std::tuple(number.size(), number, path);
  };
  std::sort(tables.begin(), tables.end(),
            [&](const fs::path& a, const fs::path& b) { return key(a) < key(b); });
  if (tables.empty()) {
    throw InputError("folder " + quote(folder.string()) +
                     " has no table (.txt, .csv or .tsv) in it; it takes one a layer");
  }
  return tables;
}

Trace convert_folder(const fs::path& folder, const ConvertOptions& options) {
  std::vector<Routing> layers;
  Info info;
  for (const fs::path& path : tables_in(folder)) {
    const Trace layer = convert_file(path, options);
    const Info& one = layer.info();
    if (one.steps != 1 || one.layers != 1) {
      throw InputError(quote(path.string()) +
                       " has several steps or layers; in a folder, each file is one layer");
    }
    if (!layers.empty() && one.top_k != info.top_k) {
      throw InputError(quote(path.string()) + " has " + std::to_string(one.top_k) +
                       " experts a token, the files before it " + std::to_string(info.top_k));
    }
    const int experts = std::max(one.experts, info.experts);
    const int ranks = std::max(one.ranks, info.ranks);
    info = one;
    info.experts = experts;
    info.ranks = ranks;
    layers.push_back(layer.read(0, 0));
  }
  info.layers = static_cast<int>(layers.size());
  return Trace(info, std::move(layers), folder.string());
}

}  // namespace

Trace convert(const fs::path& path, const ConvertOptions& options) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? convert_folder(path, options)
                                         : convert_file(path, options);
}

}  // namespace lrmoe::trace
