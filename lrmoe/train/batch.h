// A rank's part of a batch, as tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "lrmoe/train/text.h"

namespace lrmoe::train {

struct Batch {
  at::Tensor tokens;   // [B, S] int64
  at::Tensor targets;  // [B, S]: the token after each
};

/// [begin, end) of `count` sequences for one rank: contiguous, as even as possible.
inline std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

/// Sequences [begin, end), each of `length` + 1 bytes, as `sequence(index)` gives them.
Batch make_batch(std::int64_t begin, std::int64_t end, int length,
                 const std::function<Text::Bytes(std::int64_t)>& sequence);

}  // namespace lrmoe::train
