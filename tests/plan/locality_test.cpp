// Pairs that cross nodes against a minimum-cost flow.
#include <gtest/gtest.h>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <iostream>

#include "lrmoe/plan/lrmoe.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

/// The least number of pairs that cross nodes, over all splits whose fullest rank has
/// at most `largest` pairs and all assignments of sources.
std::int64_t least_crossing(const Cluster& cluster, const Counts& demand,
                            const Instances& instances, std::int64_t largest) {
  lemon::SmartDigraph graph;
  lemon::SmartDigraph::ArcMap<std::int64_t> capacity(graph), cost(graph);
  lemon::SmartDigraph::NodeMap<std::int64_t> supply(graph);
  const auto arc = [&](auto from, auto to, std::int64_t room, std::int64_t price) {
    const auto added = graph.addArc(from, to);
    capacity[added] = room;
    cost[added] = price;
  };
  const auto sink = graph.addNode();
  std::int64_t all = 0;
  std::vector<lemon::SmartDigraph::Node> ranks;
  for (int r = 0; r < cluster.ranks; ++r) {
    ranks.push_back(graph.addNode());
    supply[ranks.back()] = 0;
    arc(ranks.back(), sink, largest, 0);
  }
  for (int e = 0; e < cluster.experts; ++e) {
    for (int r = 0; r < cluster.ranks; ++r) {
      if (demand.at(r, e) == 0) {
        continue;
      }
      const auto source = graph.addNode();
      supply[source] = demand.at(r, e);
      all += demand.at(r, e);
      for (const std::int32_t to : instances[static_cast<std::size_t>(e)]) {
        arc(source, ranks[static_cast<std::size_t>(to)], demand.at(r, e),
            node_of(cluster, r) == node_of(cluster, to) ? 0 : 1);
      }
    }
  }
  supply[sink] = -all;
  lemon::NetworkSimplex<lemon::SmartDigraph, std::int64_t> solver(graph);
  solver.upperMap(capacity).costMap(cost).supplyMap(supply);
  EXPECT_EQ(solver.run(), solver.OPTIMAL);
  return solver.totalCost();
}

TEST(Locality, PairsThatCrossNodesAreTheLeastThatTheBalanceAllows) {
  test::Random random(81);
  std::int64_t ours = 0;
  std::int64_t least = 0;
  std::int64_t routed = 0;
  for (int round = 0; round < 400; ++round) {
    Cluster cluster{2 * test::pick(random, 2, 6), test::pick(random, 4, 20), 0, 1, 0};
    cluster.ranks_per_node = test::pick(random, 2, cluster.ranks / 2);
    cluster.slots =
        std::min(cluster.experts,
                 (cluster.experts + cluster.ranks - 1) / cluster.ranks + test::pick(random, 1, 2));
    const Counts demand = test::sparse_counts(random, cluster, 60);
    const auto strategy = make_strategy({.name = "lrmoe"});
    RouteInput input{cluster, demand, strategy->initial(cluster), true};
    input.placement = strategy->place(cluster, demand, input.placement);
    const Plan plan = strategy->route(input);
    std::int64_t crossing = 0;
    for (const Route& route : plan.forward) {
      crossing += node_of(cluster, route.source) != node_of(cluster, route.rank) ? route.pairs : 0;
    }
    const auto loads = rank_loads(plan.forward, cluster.ranks);
    const std::int64_t best =
        least_crossing(cluster, demand, instances_of(input.placement, cluster.experts),
                       *std::max_element(loads.begin(), loads.end()));
    EXPECT_EQ(crossing, best);
    ours += crossing;
    least += best;
    routed += total_pairs(demand);
  }
  std::cout << "pairs that cross nodes: " << ours << " of " << routed << ", the least possible "
            << least << "\n";
}

}  // namespace
}  // namespace lrmoe::plan
