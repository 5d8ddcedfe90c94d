// Reductions in rank order over buffers that lie in this process.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

/// Elements [begin, begin + count) of ((in[0] + in[1]) + in[2]) + ..., or of
/// their maximum or minimum, into `out`. `out` may be that very stretch of one
/// of the inputs. bf16 sums are accumulated in f32 and rounded once; integer
/// sums wrap; the maximum and minimum of anything and NaN are NaN. u8 is
/// refused by the callers.
void reduce_in_order(std::span<const void* const> inputs, std::int64_t begin, std::int64_t count,
                     DType dtype, Reduce op, void* out) noexcept;

/// bf16 is the upper half of an f32.
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// To the nearest bf16, ties to even; NaN stays NaN.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace lrmoe::comm
