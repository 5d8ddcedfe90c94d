// A counting sort: positions by key.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace lrmoe {

/// 0, then the sums of the first 1, 2, ... counts.
inline std::vector<std::int64_t> prefix_sums(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> sums(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), sums.begin() + 1);
  return sums;
}

/// The positions 0..keys-1 by key, stably.
struct Buckets {
  std::vector<std::int64_t> items;
  std::vector<std::int64_t> begin;  // [key_count + 1]
};

inline Buckets bucket(std::span<const std::int64_t> keys, std::int64_t key_count) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(key_count), 0);
  for (const auto key : keys) {
    ++counts[static_cast<std::size_t>(key)];
  }
  Buckets out{std::vector<std::int64_t>(keys.size()), prefix_sums(counts)};
  std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto slot = next[static_cast<std::size_t>(keys[i])]++;
    out.items[static_cast<std::size_t>(slot)] = static_cast<std::int64_t>(i);
  }
  return out;
}

}  // namespace lrmoe
