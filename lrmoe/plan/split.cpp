#include "lrmoe/plan/split.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

/// Raises the threshold until all pairs flow.
MinMaxSplit finish(InstanceFlow& flow, std::span<const std::int64_t> pairs,
                   const Instances& instances, int ranks, std::int64_t threshold) {
  const std::int64_t all = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
  while (flow.run() < all) {
    const InstanceFlow::Cut cut = flow.cut();
    std::int64_t stuck = 0;
    for (const std::int32_t e : cut.experts) {
      stuck += pairs[static_cast<std::size_t>(e)];
    }
    const auto full = static_cast<std::int64_t>(cut.ranks.size());
    LRMOE_ASSERT(full > 0, "[min_max_split] an expert with pairs has no instance");
    const std::int64_t next = (stuck + full - 1) / full;
    LRMOE_ASSERT(next > threshold, "[min_max_split] the threshold does not rise");
    for (int r = 0; r < ranks; ++r) {
      flow.raise_capacity(r, next - threshold);
    }
    threshold = next;
  }
  MinMaxSplit split{Loads(static_cast<int>(instances.size()), ranks)};
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  for (int e = 0; e < split.loads.rows; ++e) {
    const auto& there = instances[static_cast<std::size_t>(e)];
    for (std::size_t i = 0; i < there.size(); ++i) {
      const std::int64_t amount = flow.flow(e, i);
      split.loads.at(e, there[i]) = amount;
      loads[static_cast<std::size_t>(there[i])] += amount;
    }
  }
  split.largest = *std::max_element(loads.begin(), loads.end());
  return split;
}

std::int64_t start(InstanceFlow& flow, std::span<const std::int64_t> pairs, int ranks) {
  const std::int64_t all = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
  const std::int64_t mean = (all + ranks - 1) / ranks;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    flow.raise_supply(static_cast<int>(e), pairs[e]);
  }
  for (int r = 0; r < ranks; ++r) {
    flow.raise_capacity(r, mean);
  }
  return mean;
}

/// Pairs that can stay on their rank, then on their node, go there first.
void seed_local(InstanceFlow& flow, const Cluster& cluster, const Counts& pairs,
                const Instances& instances) {
  const int width = cluster.ranks_per_node > 0 ? cluster.ranks_per_node : cluster.ranks;
  const int nodes = (cluster.ranks + width - 1) / width;
  std::vector<std::int64_t> open(static_cast<std::size_t>(nodes));
  for (int e = 0; e < cluster.experts; ++e) {
    std::fill(open.begin(), open.end(), 0);
    for (int r = 0; r < cluster.ranks; ++r) {
      open[static_cast<std::size_t>(r / width)] += pairs.at(r, e);
    }
    const auto& there = instances[static_cast<std::size_t>(e)];
    for (const std::int32_t r : there) {
      open[static_cast<std::size_t>(r / width)] -= flow.seed(e, r, pairs.at(r, e));
    }
    for (const std::int32_t r : there) {
      if (nodes > 1) {
        auto& rest = open[static_cast<std::size_t>(r / width)];
        rest -= flow.seed(e, r, rest);
      }
    }
  }
}

}  // namespace

Instances instances_of(const Placement& placement, int experts) {
  Instances instances = slots_of_experts(placement, experts);
  for (auto& ranks : instances) {
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  }
  return instances;
}

MinMaxSplit min_max_split(std::span<const std::int64_t> pairs, const Instances& instances,
                          int ranks) {
  InstanceFlow flow(instances, ranks);
  const std::int64_t threshold = start(flow, pairs, ranks);
  return finish(flow, pairs, instances, ranks, threshold);
}

MinMaxSplit min_max_split(const Cluster& cluster, const Counts& pairs, const Instances& instances) {
  const auto all = pairs_per_expert(pairs);
  InstanceFlow flow(instances, cluster.ranks);
  const std::int64_t threshold = start(flow, all, cluster.ranks);
  seed_local(flow, cluster, pairs, instances);
  return finish(flow, all, instances, cluster.ranks, threshold);
}

}  // namespace lrmoe::plan
