// Help with names a user wrote: the nearest that exists, lists, and quoting that
// keeps a message on one line.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lrmoe {

/// Insertions, deletions, replacements and swaps of neighbours that turn a into b
/// (optimal string alignment); upper and lower case count as equal.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the least edit distance (the first of equals); empty when
/// there are no candidates.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean 'x'?" when a candidate is near, else "; there are: a, b, c".
std::string suggestion(std::string_view name, std::span<const std::string> candidates);

/// "a, b, c".
std::string join(std::span<const std::string> names, std::string_view separator = ", ");

/// The text as one printable line: control characters escaped, long text cut.
std::string one_line(std::string_view text, std::size_t longest = 200);

/// 'text', made one line.
std::string quote(std::string_view text);

/// The parts between separators, empty ones included; "" has one empty part.
std::vector<std::string> split(std::string_view text, char separator);

/// A number as a person would write it: "0.25", "1e-09".
std::string print_number(double value);

/// Without blanks at either end.
std::string trimmed(std::string_view text);

}  // namespace lrmoe
