#include "lrmoe/moe/live_pairs.h"

namespace lrmoe::moe {

at::Tensor LivePairs::spread(const at::Tensor& values) const {
  return index.defined() ? at::zeros({all}, values.options()).index_copy_(0, index, values)
                         : values;
}

LivePairs live_pairs(const Dispatch& d, const at::Tensor& delta_rows, bool look) {
  LivePairs live{d.groups, d.row, d.row_pairs, d.row_begin, {}, d.row.numel()};
  if (!look) {
    return live;
  }
  const at::Tensor row_lives = delta_rows.ne(0).any(1);
  const at::Tensor lives = row_lives.index_select(0, d.row);
  const at::Tensor index = lives.nonzero().flatten();
  if (index.numel() == live.all) {
    return live;
  }
  live.index = index;
  live.row = d.row.index_select(0, index);
  // before[i]: live pairs among the first i, so also the new number of pair i if it lives.
  const at::Tensor before = at::cat({at::zeros({1}, at::kLong), at::cumsum(lives, 0, at::kLong)});
  const auto* counts = before.const_data_ptr<std::int64_t>();
  for (Group& group : live.groups) {
    group.begin = counts[group.begin];
    group.end = counts[group.end];
  }
  const at::Tensor by_row =
      d.row_pairs.index_select(0, lives.index_select(0, d.row_pairs).nonzero().flatten());
  live.row_pairs = before.index_select(0, by_row);
  const at::Tensor sizes = d.row_begin.diff() * row_lives;
  live.row_begin = at::cat({at::zeros({1}, at::kLong), at::cumsum(sizes, 0, at::kLong)});
  return live;
}

}  // namespace lrmoe::moe
