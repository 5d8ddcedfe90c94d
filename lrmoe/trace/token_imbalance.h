// The eight workloads of the public token-imbalance benchmark: which experts the
// tokens of a step choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lrmoe::trace {

/// W0_balanced to W7_burst.
const std::vector<std::string>& token_imbalance_names();

/// Ids [tokens * top_k] of a step, ascending in a token. Drawn with mt19937, seeded by
/// the first 8 hexadecimal digits of SHA-256 of "NAME|SEED|STEP"; beyond the first
/// layer "|LAYER" is added. InputError where a pool has fewer than top_k experts.
std::vector<std::int32_t> token_imbalance_ids(const std::string& name, int experts, int top_k,
                                              std::int64_t tokens, std::uint64_t seed, int step,
                                              int layer);

/// The first 8 hexadecimal digits of SHA-256 of the text, as a number.
std::uint32_t sha256_seed(const std::string& text);

}  // namespace lrmoe::trace
