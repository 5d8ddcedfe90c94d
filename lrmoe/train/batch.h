// A rank's part of a batch, as tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <utility>

#include "lrmoe/train/data.h"

namespace lrmoe::train {

/// The target of a token whose prediction is not trained on, as cross_entropy has it.
inline constexpr std::int64_t kNoTarget = -100;

struct Batch {
  at::Tensor tokens;   // [B, S] int64
  at::Tensor targets;  // [B, S]: the token after each, or kNoTarget
};

/// [begin, end) of `count` sequences for one rank: contiguous, as even as possible.
inline std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

/// The sequences at these places, filled up to `length` inputs at their ends.
Batch make_batch(const Data& data, std::span<const std::int64_t> places, std::int64_t length);

}  // namespace lrmoe::train
