#include "lrmoe/plan/exchange.h"

#include <algorithm>

namespace lrmoe::plan {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr int kSweeps = 8;

}  // namespace

std::int64_t Exchange::run(const InstanceIndex& index, std::span<const std::int64_t> share,
                           std::int64_t capacity, int node_width, std::span<std::int64_t> loads) {
  kept_.assign(at(index.ranks), 0);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    kept_[at(index.rank[i])] += loads[i] * share[at(index.expert[i])];
  }
  instance_.assign(at(index.experts), -1);
  node_width_ = node_width;
  bool moved = true;
  for (int sweep = 0; sweep < kSweeps && moved; ++sweep) {
    moved = false;
    for (int r = 0; r < index.ranks; ++r) {
      if (kept_[at(r)] > capacity) {
        moved = relieve(index, share, capacity, r, loads) || moved;
      }
    }
  }
  std::int64_t above = 0;
  for (const std::int64_t kept : kept_) {
    above += std::max<std::int64_t>(kept - capacity, 0);
  }
  return above;
}

bool Exchange::relieve(const InstanceIndex& index, std::span<const std::int64_t> share,
                       std::int64_t capacity, int r, std::span<std::int64_t> loads) {
  for (const std::int32_t i : index.on_rank(r)) {
    instance_[at(index.expert[at(i)])] = i;
  }
  bool moved = false;
  for (const std::int32_t i : index.on_rank(r)) {
    const std::int32_t e = index.expert[at(i)];
    for (std::int32_t j = index.begin[at(e)]; j < index.begin[at(e) + 1] && loads[at(i)] > 0; ++j) {
      const int s = index.rank[at(j)];
      if (kept_[at(s)] >= kept_[at(r)] || s / node_width_ != r / node_width_) {
        continue;
      }
      for (const std::int32_t there : index.on_rank(s)) {
        const std::int32_t other = index.expert[at(there)];
        const std::int64_t gain = share[at(e)] - share[at(other)];
        if (gain <= 0 || instance_[at(other)] < 0 || loads[at(there)] == 0) {
          continue;
        }
        const std::int64_t wanted =
            std::min(kept_[at(r)] - capacity, (kept_[at(r)] - kept_[at(s)]) / 2);
        const std::int64_t pairs = std::min({loads[at(i)], loads[at(there)], wanted / gain});
        if (pairs <= 0) {
          continue;
        }
        loads[at(i)] -= pairs;
        loads[at(j)] += pairs;
        loads[at(there)] -= pairs;
        loads[at(instance_[at(other)])] += pairs;
        kept_[at(r)] -= gain * pairs;
        kept_[at(s)] += gain * pairs;
        moved = true;
      }
    }
  }
  for (const std::int32_t i : index.on_rank(r)) {
    instance_[at(index.expert[at(i)])] = -1;
  }
  return moved;
}

}  // namespace lrmoe::plan
