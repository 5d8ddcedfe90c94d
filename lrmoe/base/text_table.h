// Plain tables for the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lrmoe {

using TextRows = std::vector<std::vector<std::string>>;

/// The rows, all of one length, in columns: the first stands left, numbers right.
std::string aligned(const TextRows& rows);

/// 8301 as "8,301".
std::string with_commas(std::int64_t number);

}  // namespace lrmoe
