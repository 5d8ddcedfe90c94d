#include "lrmoe/plan/place.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/split.h"

namespace lrmoe::plan {
namespace {

constexpr int kShareBits = 16;  // an instance's share of a weight, in 2^-16

std::int64_t sum(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

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

/// Every row ascending, empty slots last: equal placements look equal.
Placement sorted_rows(Placement placement) {
  for (int r = 0; r < placement.rows; ++r) {
    auto row = placement.row(r);
    std::sort(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
    });
  }
  return placement;
}

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

std::optional<Placement> pack_even(std::span<const std::int64_t> weights, int ranks, int slots) {
  struct Item {
    std::int64_t weight;
    std::int32_t expert;
    bool operator<(const Item& other) const {
      return std::tie(weight, expert) < std::tie(other.weight, other.expert);
    }
  };
  if (static_cast<std::int64_t>(weights.size()) > std::int64_t{ranks} * (slots - 1) + 1) {
    return std::nullopt;
  }
  std::vector<Item> left;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    left.push_back({weights[e], static_cast<std::int32_t>(e)});
  }
  std::sort(left.begin(), left.end());
  const std::int64_t all = sum(weights);
  Placement placement(ranks, slots, -1);
  for (int r = 0; r < ranks; ++r) {
    if (r + 1 == ranks) {
      LRMOE_ASSERT(left.size() <= static_cast<std::size_t>(slots), "[pack_even] too many are left");
      for (std::size_t i = 0; i < left.size(); ++i) {
        placement.at(r, static_cast<int>(i)) = left[i].expert;
      }
      break;
    }
    // This rank's even part; differences of floors add up to the whole.
    const std::int64_t part = all * (r + 1) / ranks - all * r / ranks;
    // Whole experts: the window of S - 1 that still fits and is heaviest, with an
    // expert above it to cut; where none fits, as many of the lightest as do.
    const auto width = static_cast<std::size_t>(slots - 1);
    std::size_t begin = 0;
    std::size_t count = 0;
    std::int64_t whole = 0;
    for (; count < std::min(width, left.size()) && whole + left[count].weight <= part; ++count) {
      whole += left[count].weight;
    }
    while (count == width && begin + width + 1 < left.size() &&
           whole - left[begin].weight + left[begin + width].weight <= part) {
      whole += left[begin + width].weight - left[begin].weight;
      ++begin;
    }
    const std::size_t end = begin + count;
    for (std::size_t i = begin; i < end; ++i) {
      placement.at(r, static_cast<int>(i - begin)) = left[i].expert;
    }
    if (whole < part && end < left.size()) {
      placement.at(r, static_cast<int>(count)) = left[end].expert;
      left[end].weight -= part - whole;
      if (left[end].weight <= 0) {
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(begin),
               left.begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(left.begin(), left.end());
  }
  return sorted_rows(placement);
}

std::int64_t placement_cost(std::span<const std::int64_t> forward,
                            std::span<const std::int64_t> backward, const Placement& placement) {
  const Instances instances = instances_of(placement, static_cast<int>(forward.size()));
  return min_max_split(forward, instances, placement.rows).largest +
         min_max_split(backward, instances, placement.rows).largest;
}

Placement choose_placement(const Cluster& cluster, std::span<const std::int64_t> forward,
                           std::span<const std::int64_t> backward, const Placement& present) {
  std::vector<std::int64_t> work(forward.begin(), forward.end());
  for (std::size_t e = 0; e < work.size(); ++e) {
    work[e] += backward[e];
  }
  std::vector<Placement> candidates;
  for (const auto& weights : {forward, std::span<const std::int64_t>(work)}) {
    if (auto even = pack_even(weights, cluster.ranks, cluster.slots)) {
      candidates.push_back(*std::move(even));
    }
  }
  const auto instances =
      greedy_replicas(work, std::int64_t{cluster.ranks} * cluster.slots, cluster.ranks);
  candidates.push_back(
      sorted_rows(pack_balanced(work, instances, cluster.ranks, cluster.slots, true)));

  const Placement* best = nullptr;
  std::int64_t least = 0;
  for (const Placement& candidate : candidates) {
    const std::int64_t cost = placement_cost(forward, backward, candidate);
    if (best == nullptr || cost < least) {
      best = &candidate;
      least = cost;
    }
  }
  const std::int64_t now = placement_cost(forward, backward, present);
  return now - least <= least / 200 ? present : *best;
}

}  // namespace lrmoe::plan
