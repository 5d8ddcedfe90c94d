// Powers and logarithms that have the same bits on every machine and compiler: only
// + - * / on doubles (no libm, whose last bits differ). Errors below 1e-14, relative
// for exp2 and pow, absolute for log2.
#pragma once

#include <bit>
#include <cstdint>

namespace lrmoe::trace {

/// 2^x for |x| <= 1000.
inline double portable_exp2(double x) {
  const auto whole = static_cast<std::int64_t>(x < 0 ? x - 0.5 : x + 0.5);
  const double y = (x - static_cast<double>(whole)) * 0.69314718055994530942;  // |y| <= 0.347
  double sum = 1.0;
  for (int n = 18; n >= 1; --n) {  // Taylor, by Horner
    sum = 1.0 + sum * y / n;
  }
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(whole + 1023) << 52);
}

/// Of a normal number above zero.
inline double portable_log2(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1.0) / (m + 1.0);  // |t| <= 0.172; ln m = 2 atanh t
  double sum = 0.0;
  for (int n = 23; n >= 1; n -= 2) {
    sum = sum * t * t + 1.0 / n;
  }
  return static_cast<double>(exponent) + 2.0 * t * sum * 1.4426950408889634074;
}

/// x^y for x > 0.
inline double portable_pow(double x, double y) {
  return portable_exp2(y * portable_log2(x));
}

}  // namespace lrmoe::trace
