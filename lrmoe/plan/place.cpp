#include "lrmoe/plan/place.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

constexpr int kShareBits = 16;  // an instance's share of a weight, in 2^-16

/// Slots that fill up rank by rank.
class Packing {
 public:
  Packing(int ranks, int slots)
      : placement_(ranks, slots, -1),
        used_(static_cast<std::size_t>(ranks), 0),
        load_(static_cast<std::size_t>(ranks), 0) {}

  bool free(int rank) const { return used_[at(rank)] < placement_.cols; }
  bool holds(int rank, std::int32_t expert) const {
    const auto row = placement_.row(rank);
    return std::find(row.begin(), row.end(), expert) != row.end();
  }
  void put(int rank, std::int32_t expert, std::int64_t weight) {
    placement_.at(rank, used_[at(rank)]++) = expert;
    load_[at(rank)] += weight;
  }
  /// Least loaded rank with a free slot (and without the expert), or -1.
  int least_loaded(std::int32_t expert, bool distinct) const {
    int best = -1;
    for (int r = 0; r < placement_.rows; ++r) {
      if (free(r) && !(distinct && holds(r, expert)) &&
          (best < 0 || load_[at(r)] < load_[at(best)])) {
        best = r;
      }
    }
    return best;
  }
  /// All free slots are where the expert stands already: one of a full rank's
  /// experts goes to a free slot and makes room. Returns the rank.
  int make_room(std::int32_t expert, std::span<const std::int64_t> share) {
    const int open = least_loaded(expert, false);
    for (int r = 0; r < placement_.rows; ++r) {
      if (holds(r, expert)) {
        continue;
      }
      for (int s = 0; s < placement_.cols; ++s) {
        const std::int32_t other = placement_.at(r, s);
        if (!holds(open, other)) {
          const std::int64_t weight = share[at(other)];
          put(open, other, weight);
          placement_.at(r, s) = placement_.at(r, placement_.cols - 1);
          placement_.at(r, placement_.cols - 1) = -1;
          --used_[at(r)];
          load_[at(r)] -= weight;
          return r;
        }
      }
    }
    LRMOE_ASSERT(false, "[place] more instances of an expert than ranks");
    return -1;
  }
  const Placement& placement() const { return placement_; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  Placement placement_;
  std::vector<int> used_;
  std::vector<std::int64_t> load_;
};

}  // namespace

std::vector<std::int32_t> greedy_replicas(std::span<const std::int64_t> weights,
                                          std::int64_t instances, std::int32_t most) {
  std::vector<std::int32_t> counts(weights.size(), 1);
  std::vector<std::int32_t> given(weights.size());
  std::iota(given.begin(), given.end(), 0);
  for (auto total = static_cast<std::int64_t>(weights.size()); total < instances; ++total) {
    std::size_t best = weights.size();
    for (std::size_t e = 0; e < weights.size(); ++e) {
      if (counts[e] < most &&
          (best == weights.size() || weights[e] * counts[best] > weights[best] * counts[e])) {
        best = e;
      }
    }
    if (best == weights.size()) {
      break;
    }
    ++counts[best];
    given.push_back(static_cast<std::int32_t>(best));
  }
  return given;
}

Placement pack_balanced(std::span<const std::int64_t> weights,
                        std::span<const std::int32_t> instances, int ranks, int slots,
                        bool distinct) {
  std::vector<std::int64_t> counts(weights.size(), 0);
  for (const std::int32_t e : instances) {
    ++counts[static_cast<std::size_t>(e)];
  }
  std::vector<std::int64_t> share(weights.size());
  for (std::size_t e = 0; e < weights.size(); ++e) {
    share[e] = (weights[e] << kShareBits) / counts[e];
  }
  std::vector<std::int32_t> order(instances.begin(), instances.end());
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return share[static_cast<std::size_t>(a)] > share[static_cast<std::size_t>(b)];
  });
  Packing packing(ranks, slots);
  for (const std::int32_t e : order) {
    int rank = packing.least_loaded(e, distinct);
    if (rank < 0) {
      rank = packing.make_room(e, share);
    }
    packing.put(rank, e, share[static_cast<std::size_t>(e)]);
  }
  return packing.placement();
}

}  // namespace lrmoe::plan
