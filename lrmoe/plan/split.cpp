#include "lrmoe/plan/split.h"

#include <algorithm>

#include "lrmoe/plan/balance.h"

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
  const std::int64_t largest = balancer.split(index, pairs, {}, {}, 0, loads);
  return to_table(index, loads, largest);
}

MinMaxSplit min_max_split(const Cluster& cluster, const Counts& pairs, const Instances& instances) {
  InstanceIndex index;
  index.build(instances, cluster.ranks);
  std::vector<std::int64_t> local(static_cast<std::size_t>(index.size()));
  for (std::size_t i = 0; i < local.size(); ++i) {
    local[i] = pairs.at(index.rank[i], index.expert[i]);
  }
  std::vector<std::int64_t> node_pairs;
  if (cluster.ranks_per_node > 0 && cluster.ranks_per_node < cluster.ranks) {
    const int nodes = (cluster.ranks + cluster.ranks_per_node - 1) / cluster.ranks_per_node;
    Table<std::int64_t> table(nodes, cluster.experts);
    for (int r = 0; r < cluster.ranks; ++r) {
      for (int e = 0; e < cluster.experts; ++e) {
        table.at(r / cluster.ranks_per_node, e) += pairs.at(r, e);
      }
    }
    node_pairs = std::move(table.values);
  }
  Balancer balancer;
  std::vector<std::int64_t> loads(local.size());
  const std::int64_t largest = balancer.split(index, pairs_per_expert(pairs), local, node_pairs,
                                              cluster.ranks_per_node, loads);
  return to_table(index, loads, largest);
}

}  // namespace lrmoe::plan
