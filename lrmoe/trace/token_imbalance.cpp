#include "lrmoe/trace/token_imbalance.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "lrmoe/base/error.h"

namespace lrmoe::trace {
namespace {

using Pool = std::vector<std::int32_t>;

Pool range(int begin, int end) {
  Pool pool(static_cast<std::size_t>(end - begin));
  std::iota(pool.begin(), pool.end(), begin);
  return pool;
}

/// Hot experts: which tokens choose among them, and who they are.
struct Rule {
  Pool hot;
  int every = 4;           // of so many tokens ...
  bool hot_first = false;  // ... the first is hot and the others not, or the reverse
};

Rule rule_of(const std::string& name, int experts, int top_k, int step) {
  const int width = std::max(top_k, experts / 4);
  if (name == "W1_hot_expert_set" || name == "W2_hot_rank") {
    return {range(0, width)};
  }
  if (name == "W3_spread_hot_experts") {
    Pool even;
    for (int i = 0; i < std::max(top_k, experts / 2); ++i) {
      even.push_back(2 * i % experts);
    }
    std::sort(even.begin(), even.end());
    even.erase(std::unique(even.begin(), even.end()), even.end());
    return {static_cast<int>(even.size()) >= top_k ? even : range(0, experts)};
  }
  if (name == "W5_zero_expert_rank") {
    return {range(experts / 2, experts), 1, true};
  }
  if (name == "W6_rotating_hotspot") {
    Pool shifted;
    for (int i = 0; i < width; ++i) {
      const std::int64_t base = std::int64_t{step / 3} * width;
      shifted.push_back(static_cast<std::int32_t>((base + i) % experts));
    }
    return {shifted};
  }
  if (name == "W7_burst" && step % 4 == 3) {
    return {range(0, width), 2, true};
  }
  return {{}, 1, false};  // W4, and W7 between bursts: everyone
}

/// k distinct members of the pool by a partial Fisher-Yates shuffle, ascending.
void draw(Pool pool, std::size_t k, std::mt19937& random, std::int32_t* ids) {
  const auto n = static_cast<std::uint32_t>(pool.size());
  for (std::uint32_t i = 0; i + 1 < n; ++i) {  // all draws are made, as the benchmark makes them
    std::swap(pool[i], pool[i + static_cast<std::uint32_t>(random()) % (n - i)]);
  }
  std::copy_n(pool.begin(), k, ids);
  std::sort(ids, ids + k);
}

}  // namespace

std::uint32_t sha256_seed(const std::string& text) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  const int done =
      EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  LRMOE_ASSERT(done == 1 && size == digest.size(), "SHA-256 failed");
  return std::uint32_t{digest[0]} << 24 | std::uint32_t{digest[1]} << 16 |
         std::uint32_t{digest[2]} << 8 | std::uint32_t{digest[3]};
}

const std::vector<std::string>& token_imbalance_names() {
  static const std::vector<std::string> names{
      "W0_balanced",      "W1_hot_expert_set",   "W2_hot_rank",         "W3_spread_hot_experts",
      "W4_source_ragged", "W5_zero_expert_rank", "W6_rotating_hotspot", "W7_burst"};
  return names;
}

std::vector<std::int32_t> token_imbalance_ids(const std::string& name, int experts, int top_k,
                                              std::int64_t tokens, std::uint64_t seed, int step,
                                              int layer) {
  const auto k = static_cast<std::size_t>(top_k);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens) * k);
  if (name == "W0_balanced") {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(experts));
    }
    for (std::size_t t = 0; t < ids.size(); t += k) {
      std::sort(ids.begin() + static_cast<std::ptrdiff_t>(t),
                ids.begin() + static_cast<std::ptrdiff_t>(t + k));
    }
    return ids;
  }
  const std::string text = name + "|" + std::to_string(seed) + "|" + std::to_string(step) +
                           (layer > 0 ? "|" + std::to_string(layer) : "");
  std::mt19937 random(sha256_seed(text));
  const Pool all = range(0, experts);
  const Rule rule = rule_of(name, experts, top_k, step);
  if (!rule.hot.empty() && rule.hot.size() < k) {
    throw InputError("workload " + name + ": " + std::to_string(rule.hot.size()) + " of the " +
                     std::to_string(experts) +
                     " experts are chosen from, fewer than top-k = " + std::to_string(top_k) +
                     "; it takes at least " + std::to_string(2 * top_k) + " experts");
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool first = t % rule.every == 0;
    const bool hot = !rule.hot.empty() && first == rule.hot_first;
    draw(hot ? rule.hot : all, k, random, ids.data() + static_cast<std::size_t>(t) * k);
  }
  return ids;
}

}  // namespace lrmoe::trace
