// Rows of routing in any order, put together to a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/trace/convert.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

/// A token's routing in one layer and step, as a line says it.
struct Row {
  std::int64_t step = 0;
  std::int64_t layer = 0;
  std::int64_t token = 0;
  std::vector<std::int32_t> experts;
  std::vector<float> gates;
  std::optional<std::int32_t> source;
  std::vector<float> scores;  // empty: none
};

class Rows {
 public:
  /// `name` stands in messages.
  Rows(const std::string& name, const ConvertOptions& options);

  /// Checks the row; InputError that names the line.
  void add(const Row& row, std::int64_t line);
  /// Checks that no step, layer or token is missing or there twice.
  Trace finish();

  /// "'x' line 7: "
  std::string at(std::int64_t line) const;

 private:
  struct Place {
    std::int64_t step;
    std::int64_t layer;
    std::int64_t token;
    std::int64_t line;
    std::size_t index;  // of the row's values
  };
  void check_order() const;

  std::string name_;
  ConvertOptions options_;
  std::vector<Place> places_;
  std::size_t k_ = 0;
  std::int32_t largest_ = -1;
  bool with_source_ = false;
  bool with_scores_ = false;
  std::vector<std::int32_t> ids_;
  std::vector<float> gates_;
  std::vector<std::int32_t> sources_;
  std::vector<float> scores_;
};

/// Calls take(line, number) for every line that is not blank; a line's end may be
/// "\r\n". InputError for a line of more than a mebibyte.
template <class Take>
void for_each_line(std::string_view text, const Rows& rows, Take&& take);

}  // namespace lrmoe::trace

#include "lrmoe/base/error.h"

template <class Take>
void lrmoe::trace::for_each_line(std::string_view text, const Rows& rows, Take&& take) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.size() > kLongest) {
      throw InputError(rows.at(number) + "more than " + std::to_string(kLongest) +
                       " characters; it takes one token a line");
    }
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      take(line, number);
    }
  }
}
