// Pairs whose delta is not zero. A token without a target has delta = 0 in the last
// layer, and one that no target looks back at (padding) in every layer: its pairs add
// nothing to any gradient. Their rows travel, since the numbers of rows were agreed on
// before delta was known; no GEMM sees them.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "lrmoe/moe/dispatch.h"

namespace lrmoe::moe {

/// Of a dispatch at the destination: its live pairs, in destination order.
struct LivePairs {
  std::vector<Group> groups;
  at::Tensor row;        // [L] the pair's row among the received rows
  at::Tensor row_pairs;  // [L] the live pairs (by their new numbers) of row 0, of row 1, ...
  at::Tensor row_begin;  // [N' + 1]
  at::Tensor index;      // [L] which of the dispatch's pairs they are; undefined: all

  /// Numbers of the live pairs [L] among those of all: zero elsewhere.
  at::Tensor spread(const at::Tensor& values) const;

  std::int64_t all = 0;  // pairs of the dispatch
};

/// `look` false: all pairs, and delta is not looked at.
LivePairs live_pairs(const Dispatch& dispatch, const at::Tensor& delta_rows, bool look);

}  // namespace lrmoe::moe
