// Placement and what it costs: bytes between nodes, weights fetched within a step.
#include "lrmoe/plan/near.h"

#include <gtest/gtest.h>

#include <iostream>

#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/robust.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

/// Two nodes; every expert is wanted `skew` times as much by the sources of one of them.
Counts two_sided(test::Random& random, const Cluster& cluster, int skew) {
  Counts demand(cluster.ranks, cluster.experts);
  for (int e = 0; e < cluster.experts; ++e) {
    const int heavy = test::pick(random, 20, 200);
    const int side = test::pick(random, 0, 1);
    for (int r = 0; r < cluster.ranks; ++r) {
      demand.at(r, e) = node_of(cluster, r) == side ? heavy * skew : heavy;
    }
  }
  return demand;
}

std::int64_t sent_between_nodes(const Plan& plan) {
  std::int64_t pairs = 0;
  for (const Split* split : {&plan.forward, &plan.backward}) {
    for (const Route& route : *split) {
      pairs += node_of(plan.cluster, route.source) != node_of(plan.cluster, route.rank)
                   ? route.pairs
                   : 0;
    }
  }
  return pairs;
}

Plan plan_of(const StrategyOptions& options, const Cluster& cluster, const Counts& demand) {
  const auto strategy = make_strategy(options);
  RouteInput input{cluster, demand, strategy->initial(cluster)};
  input.placement = strategy->place(cluster, demand, input.placement);
  return strategy->route(input);
}

TEST(BringNear, FewerPairsCrossAndBalanceStays) {
  test::Random random(3);
  const Cluster cluster{16, 64, 6, 8, 8};
  for (const int skew : {2, 4, 10}) {
    const Counts demand = two_sided(random, cluster, skew);
    StrategyOptions options;
    options.name = "lrmoe";
    const Plan blind = plan_of(options, cluster, demand);
    // A pair's GEMMs take as long as sending half a row to the other node.
    options.costs = {1e-7, 2e-7, 1e-7, 2e-9, 2e-7, 1e-5, 1e-3};
    const Plan aware = plan_of(options, cluster, demand);
    check_plan(aware);
    const double balance = imbalance(rank_loads(aware.forward, 16));
    std::cout << "skew " << skew << ": pairs between nodes " << sent_between_nodes(blind) << " -> "
              << sent_between_nodes(aware) << ", forward imbalance "
              << imbalance(rank_loads(blind.forward, 16)) << " -> " << balance << "\n";
    EXPECT_LT(sent_between_nodes(aware), sent_between_nodes(blind) * 9 / 10);
    EXPECT_LE(balance, 1.05);
    // Equally fast links: nothing changes.
    options.costs.inter_row = options.costs.intra_row;
    EXPECT_EQ(plan_of(options, cluster, demand).placement, blind.placement);
    // Neither does it where all ranks are in one node.
    Cluster one = cluster;
    one.ranks_per_node = 0;
    options.costs.inter_row = 1.0;
    EXPECT_EQ(plan_of(options, one, demand).placement, blind.placement);
  }
}

TEST(BringNear, NeverTakesLonger) {
  test::Random random(4);
  for (int round = 0; round < 40; ++round) {
    Cluster cluster{2 * test::pick(random, 1, 8), 0, 0, 2, 0};
    cluster.ranks_per_node = cluster.ranks / 2;
    cluster.experts = cluster.ranks * test::pick(random, 1, 6);
    cluster.slots = cluster.experts / cluster.ranks + test::pick(random, 0, 2);
    const Counts demand = two_sided(random, cluster, test::pick(random, 1, 10));
    const auto pairs = pairs_per_expert(demand);
    std::vector<std::int64_t> kept;
    for (const std::int64_t p : pairs) {
      kept.push_back(p * kOne / 4);
    }
    const PlanCosts costs{1e-7, 2e-7, 1e-7, 2e-9, 1e-8 * test::pick(random, 1, 1000), 0, 1e-3};
    const PlacementDemand wanted{cluster, pairs, kept, &demand, Activations::keep};
    const Placement before = place_robust(cluster, pairs, kept);
    const Placement after = bring_near(costs, wanted, before);
    EXPECT_LE(placement_seconds(costs, wanted, after), placement_seconds(costs, wanted, before));
    for (const auto& ranks : slots_of_experts(after, cluster.experts)) {
      ASSERT_FALSE(ranks.empty());
      ASSERT_EQ(std::adjacent_find(ranks.begin(), ranks.end()), ranks.end());
    }
  }
}

TEST(InStep, MovesWeightsWhereThatPays) {
  test::Random random(5);
  const Cluster cluster{8, 32, 6, 4, 0};
  const Counts demand = test::random_demand(random, cluster, 400, 1.2);
  StrategyOptions options;
  options.name = "lrmoe";
  options.lrmoe.placing = Placing::in_step;
  options.costs = {1e-7, 2e-7, 1e-7, 2e-9, 2e-9, 0, 1e-6};
  const auto cheap = make_strategy(options);
  const Placement present = cheap->initial(cluster);
  const Placement moved = cheap->place(cluster, demand, present);
  EXPECT_NE(moved, present);
  EXPECT_EQ(most_used_slots(moved), cluster.slots);
  // A little other demand: what is there is good enough.
  Counts other = demand;
  other.at(0, 0) += 1;
  EXPECT_EQ(cheap->place(cluster, other, moved), moved);
  // Fetching that takes longer than imbalance costs: no replicas.
  options.costs.fetch_instance = 1.0;
  const Placement least = make_strategy(options)->place(cluster, demand, present);
  EXPECT_EQ(most_used_slots(least), 4);
  // The work itself takes longer so.
  const auto pairs = pairs_per_expert(demand);
  const PlacementDemand wanted{cluster, pairs, pairs, &demand, Activations::recompute};
  EXPECT_GT(placement_seconds(options.costs, wanted, least),
            placement_seconds(options.costs, wanted, moved));
}

}  // namespace
}  // namespace lrmoe::plan
