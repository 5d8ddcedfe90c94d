#include "lrmoe/plan/split.h"

#include <algorithm>

#include "lrmoe/plan/balance.h"
#include "lrmoe/plan/lines.h"
#include "lrmoe/plan/locality.h"

namespace lrmoe::plan {
namespace {

MinMaxSplit to_table(const InstanceIndex& index, std::span<const std::int64_t> loads,
                     std::int64_t largest) {
  MinMaxSplit split{Loads(index.experts, index.ranks), largest};
  for (std::size_t i = 0; i < loads.size(); ++i) {
    split.loads.at(index.expert[i], index.rank[i]) = loads[i];
  }
  return split;
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
  InstanceIndex index;
  index.build(instances, ranks);
  Balancer balancer;
  std::vector<std::int64_t> loads(static_cast<std::size_t>(index.size()));
  const std::int64_t largest = balancer.split(index, pairs, {}, loads);
  return to_table(index, loads, largest);
}

MinMaxSplit min_max_split(const Cluster& cluster, const Counts& pairs, const Instances& instances) {
  InstanceIndex index;
  index.build(instances, cluster.ranks);
  std::vector<std::int64_t> local(static_cast<std::size_t>(index.size()));
  for (std::size_t i = 0; i < local.size(); ++i) {
    local[i] = pairs.at(index.rank[i], index.expert[i]);
  }
  const auto all = pairs_per_expert(pairs);
  Balancer balancer;
  std::vector<std::int64_t> loads(local.size());
  const std::int64_t largest = balancer.split(index, all, local, loads);
  if (node_count(cluster) > 1) {
    const int width = node_width(cluster);
    Table<std::int64_t> node_pairs(node_count(cluster), cluster.experts);
    for (int r = 0; r < cluster.ranks; ++r) {
      for (int e = 0; e < cluster.experts; ++e) {
        node_pairs.at(r / width, e) += pairs.at(r, e);
      }
    }
    Localizer().split(index, all, local, node_pairs.values, width, largest, loads);
  }
  return to_table(index, loads, largest);
}

}  // namespace lrmoe::plan
