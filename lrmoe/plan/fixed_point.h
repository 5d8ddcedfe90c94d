// Fixed point in 2^-kQuotaBits, and products that need 128 bits on their way.
#pragma once

#include <cstdint>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

inline constexpr std::int64_t kOne = std::int64_t{1} << kQuotaBits;

__extension__ using Wide = __int128;

/// floor(a * b / c) and the remainder, for a, b >= 0 and c > 0.
constexpr std::int64_t mul_div(std::int64_t a, std::int64_t b, std::int64_t c) {
  const Wide product = static_cast<Wide>(a) * b;
  const auto low = static_cast<std::uint64_t>(product);
  // Nearly always the product has 64 bits, and dividing those is much quicker.
  return static_cast<std::int64_t>(static_cast<Wide>(low) == product
                                       ? static_cast<Wide>(low / static_cast<std::uint64_t>(c))
                                       : product / c);
}
constexpr std::int64_t mul_mod(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>(static_cast<Wide>(a) * b % c);
}

/// The nearest fixed-point number to a fraction >= 0.
constexpr std::int64_t to_fixed(double fraction) {
  return static_cast<std::int64_t>(fraction * static_cast<double>(kOne) + 0.5);
}
constexpr double from_fixed(std::int64_t value) {
  return static_cast<double>(value) / static_cast<double>(kOne);
}

}  // namespace lrmoe::plan
