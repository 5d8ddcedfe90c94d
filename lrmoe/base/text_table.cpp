#include "lrmoe/base/text_table.h"

#include <algorithm>

namespace lrmoe {

std::string aligned(const TextRows& rows) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows[0].size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      line += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
    }
    text += line + "\n";
  }
  return text;
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace lrmoe
