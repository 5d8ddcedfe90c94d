// Targets and the memory budget: what a plan gives up, and what it says of it.
#include "lrmoe/plan/budget.h"

#include <gtest/gtest.h>

#include <limits>

#include "lrmoe/base/error.h"
#include "lrmoe/base/size.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/target.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

const Cluster kCluster{8, 64, 10, 8, 0};

StrategyOptions lrmoe_options() {
  StrategyOptions options;
  options.name = "lrmoe";
  options.memory.layers = 2;
  options.memory.model.hidden = 64;
  options.memory.model.width = 256;
  return options;
}

/// The plan after one step of placing, and what the fullest rank takes.
Plan plan_of(const StrategyOptions& options, const Counts& demand) {
  const auto strategy = make_strategy(options);
  RouteInput input{kCluster, demand, strategy->initial(kCluster)};
  input.placement = strategy->place(kCluster, demand, input.placement);
  return strategy->route(input);
}

std::int64_t bytes_of(const Plan& plan, const MemoryBudget& budget) {
  MemoryBudget b = budget;
  b.model.activations = plan.activations;
  b.model.chunks = plan.chunks;
  return fullest_rank(plan, b).bytes;
}

int used_slots(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.placement.values.begin(), plan.placement.values.end(),
                                        [](std::int32_t e) { return e >= 0; }));
}

/// What recomputing in so many chunks takes, with the number of slots that takes least.
std::int64_t least_bytes(StrategyOptions options, const Counts& demand, int chunks) {
  options.memory.bytes = 0;
  options.lrmoe.activations = Activations::recompute;
  const auto strategy = make_strategy(options);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (Cluster cluster = kCluster; cluster.slots >= 8; --cluster.slots) {
    RouteInput input{cluster, demand, strategy->initial(cluster)};
    input.placement = strategy->place(cluster, demand, input.placement);
    Plan plan = strategy->route(input);
    plan.chunks = chunks;
    least = std::min(least, bytes_of(plan, options.memory));
  }
  return least;
}

TEST(Budget, GivesUpInOrderAndSaysSo) {
  test::Random random(1);
  const Counts demand = test::random_demand(random, kCluster, 512, 1.0);
  StrategyOptions options = lrmoe_options();
  options.lrmoe.activations = Activations::keep;
  const Plan free = plan_of(options, demand);
  const std::int64_t all = bytes_of(free, options.memory);
  int last = 0;
  std::vector<bool> seen(4, false);
  for (int percent = 101; percent > 0; percent -= 2) {
    options.memory.bytes = all * percent / 100;
    Plan plan;
    try {
      plan = plan_of(options, demand);
    } catch (const InputError& error) {
      const std::string words = error.what();
      EXPECT_NE(words.find("[memory] budget = "), std::string::npos) << words;
      EXPECT_NE(words.find("rank "), std::string::npos) << words;
      EXPECT_EQ(words.find('\n'), std::string::npos) << words;
      // The budget that it names is enough, and one byte less is not.
      const auto at = words.rfind(": ");
      options.memory.bytes = std::stoll(words.substr(at + 2));
      const Plan least = plan_of(options, demand);
      EXPECT_LE(bytes_of(least, options.memory), options.memory.bytes);
      --options.memory.bytes;
      EXPECT_THROW(plan_of(options, demand), InputError);
      break;
    }
    check_plan(plan);
    EXPECT_LE(bytes_of(plan, options.memory), options.memory.bytes) << percent;
    EXPECT_EQ(plan.memory.size(), 8U);
    const bool recompute = plan.activations == Activations::recompute;
    const bool less = total_pairs(plan.quota) < total_pairs(free.quota) - 1;
    const int stage = less                    ? 4
                      : plan.chunks > 1       ? 3
                      : recompute             ? 2
                      : used_slots(plan) < 80 ? 1
                                              : 0;
    EXPECT_GE(stage, last) << percent;
    ASSERT_EQ(plan.notes.size(), stage > 0 ? 1U : 0U);
    if (stage > 0) {
      const std::string& note = plan.notes[0];
      const int slots = most_used_slots(plan.placement);
      const std::string of = std::to_string(slots) + " of 10 slots a rank";
      EXPECT_EQ(note.find(of) != std::string::npos, slots < 10) << note;
      EXPECT_EQ(note.find("computed again") != std::string::npos, recompute) << note;
      // No more slots are empty than must be.
      if (slots < 10 && !less) {
        const std::int64_t one = std::int64_t{2} * 2 * 3 * 64 * 256 * 2;  // two layers
        EXPECT_GT(bytes_of(plan, options.memory) + one, options.memory.bytes) << note;
      }
    }
    if (stage >= 2) {
      EXPECT_TRUE(recompute);
    }
    if (stage >= 3) {
      EXPECT_NE(plan.notes[0].find(" chunks"), std::string::npos) << plan.notes[0];
    }
    last = std::max(last, stage);
    seen[static_cast<std::size_t>(std::min(last, 3))] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
  EXPECT_GE(last, 2);
}

TEST(Budget, OnceActivationsAreComputedAgainSlotsAreChosenAnew) {
  test::Random random(1);
  const Counts demand = test::random_demand(random, kCluster, 512, 1.0);
  StrategyOptions options = lrmoe_options();
  options.lrmoe.activations = Activations::recompute;
  const Plan again = plan_of(options, demand);
  ASSERT_EQ(used_slots(again), 80);
  options.memory.bytes = bytes_of(again, options.memory);
  options.lrmoe.activations = Activations::keep;
  const Plan plan = plan_of(options, demand);
  EXPECT_EQ(used_slots(plan), 80);
  EXPECT_EQ(plan.activations, Activations::recompute);
  EXPECT_EQ(plan.chunks, 1);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_EQ(plan.notes[0], "to fit the memory budget of " + print_size(options.memory.bytes) +
                               ": activations are computed again");
  // Where no slots fit in one go, the fewest chunks that some fit with, and then the slots.
  options.memory.bytes = least_bytes(options, demand, 1) - 1;
  const Plan chunked = plan_of(options, demand);
  EXPECT_EQ(chunked.chunks, 2);
  EXPECT_EQ(chunked.activations, Activations::recompute);
  EXPECT_LE(bytes_of(chunked, options.memory), options.memory.bytes);
}

TEST(Budget, StartsFromTheChunksThatAreSet) {
  test::Random random(1);
  const Counts demand = test::random_demand(random, kCluster, 512, 1.0);
  StrategyOptions options = lrmoe_options();
  options.lrmoe.activations = Activations::recompute;
  Plan plan = plan_of(options, demand);
  plan.chunks = 4;
  options.memory.bytes = bytes_of(plan, options.memory);
  options.memory.chunks = 4;
  plan = plan_of(options, demand);
  EXPECT_EQ(plan.chunks, 4);
  EXPECT_EQ(used_slots(plan), 80);
  EXPECT_TRUE(plan.notes.empty());
  options.memory.chunks = 1;  // it would not do in one go
  const Plan one = plan_of(options, demand);
  EXPECT_TRUE(used_slots(one) < 80 || one.chunks > 1);
  EXPECT_EQ(one.notes.size(), 1U);
  // As many as the most that are taken, or more: only the ratio is left.
  options.memory.chunks = 4;
  options.memory.most_chunks = 4;
  options.memory.bytes = least_bytes(options, demand, 4) - 1;
  plan = plan_of(options, demand);
  EXPECT_EQ(plan.chunks, 4);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_NE(plan.notes[0].find("8 of 10 slots a rank, a ratio of 0."), std::string::npos)
      << plan.notes[0];
}

TEST(Budget, WhatLayersKeepCountsForAllOfThem) {
  const MemoryTerms one{100, 100, 30, 7, 5};
  const MemoryTerms all = budgeted_terms(one, 20, 4);
  EXPECT_EQ(all.weights, 400);
  EXPECT_EQ(all.gradients, 400);
  EXPECT_EQ(all.activations, 4 * 20 + 10);
  EXPECT_EQ(all.buffers, 7);
  EXPECT_EQ(all.workspace, 5);
  // A peak that needs less than what is kept (it is another phase's).
  EXPECT_EQ(budgeted_terms(one, 40, 4).activations, 160);
  test::Random random(3);
  StrategyOptions options = lrmoe_options();
  options.lrmoe.activations = Activations::recompute;
  const Plan plan = plan_of(options, test::random_demand(random, kCluster, 512, 1.0));
  options.memory.model.activations = Activations::recompute;
  set_scores(options.memory.model, options.lrmoe);
  options.memory.layers = 1;
  const Fullest single = fullest_rank(plan, options.memory);
  options.memory.layers = 5;
  const Fullest five = fullest_rank(plan, options.memory);
  const auto kept = kept_bytes(plan, options.memory.model);
  EXPECT_GE(five.terms.activations, 5 * *std::min_element(kept.begin(), kept.end()));
  EXPECT_GT(five.bytes, single.bytes);
}

TEST(Target, TimeBecomesTheLargestRatioThatFits) {
  const PlanCosts costs{1e-8, 2e-8, 1e-8, 1e-9, 1e-8, 1e-5, 1e-3};
  const Cluster cluster{16, 64, 6, 8, 8};
  constexpr std::int64_t kPairs = 1 << 20;
  double before = 0.0;
  for (const double ratio : {0.05, 0.1, 0.3, 0.7, 1.0}) {
    for (const Activations a : {Activations::keep, Activations::recompute}) {
      const double seconds = backward_seconds(costs, cluster, kPairs, ratio, a);
      EXPECT_NEAR(ratio_for_time(costs, cluster, kPairs, seconds, a), ratio, 2e-6);
      if (a == Activations::keep) {
        EXPECT_GT(seconds, before);
        before = seconds;
      } else {
        EXPECT_GT(seconds, before);  // recomputing takes longer
      }
    }
  }
  EXPECT_EQ(ratio_for_time(costs, cluster, kPairs, 1e-9, Activations::keep), 1e-6);
  EXPECT_EQ(ratio_for_time(costs, cluster, 0, 1.0, Activations::keep), 1.0);
}

TEST(Target, PlansKeepTheRatioThatTheTimeAllows) {
  test::Random random(2);
  const Counts demand = test::random_demand(random, kCluster, 512, 1.0);
  StrategyOptions options = lrmoe_options();
  options.costs = {1e-8, 2e-8, 1e-8, 1e-9, 1e-9, 1e-5, 1e-3};
  const std::int64_t pairs = total_pairs(demand);
  options.lrmoe.time =
      backward_seconds(options.costs, kCluster, pairs, 0.4, activations_of(options));
  const Plan plan = plan_of(options, demand);
  EXPECT_NEAR(static_cast<double>(total_pairs(plan.quota)), 0.4 * static_cast<double>(pairs), 2.0);
  options.costs = {};
  EXPECT_THROW(make_strategy(options), InputError);
  options.name = "symi-sampled";  // has no use for it
  EXPECT_THROW(make_strategy(options), InputError);
}

}  // namespace
}  // namespace lrmoe::plan
