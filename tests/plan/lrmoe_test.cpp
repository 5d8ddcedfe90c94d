// The whole planner: what lrmoe's plans keep whatever the input.
#include "lrmoe/plan/lrmoe.h"

#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/json.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/place.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

StrategyOptions options_of(const char* name, double ratio, Activations activations) {
  StrategyOptions options;
  options.name = name;
  options.lrmoe.ratio = ratio;
  options.lrmoe.activations = activations;
  return options;
}

ScoreCurves curves_of(test::Random& random, int experts) {
  ScoreCurves curves(experts);
  ScoreHistogram step(experts);
  std::lognormal_distribution<float> score(0.0F, 1.0F);
  for (int i = 0; i < 200 * experts; ++i) {
    const int e = test::pick(random, 0, experts - 1);
    step.add(e, score(random) * static_cast<float>(1 + e % 5));
  }
  curves.update(step);
  return curves;
}

TEST(Lrmoe, EveryPlanKeepsTheRulesAndTheRatio) {
  test::Random random(51);
  for (int round = 0; round < 300; ++round) {
    Cluster cluster{test::pick(random, 1, 8), test::pick(random, 1, 24), 0, 0, 0};
    cluster.slots =
        std::min(cluster.experts,
                 (cluster.experts + cluster.ranks - 1) / cluster.ranks + test::pick(random, 0, 3));
    cluster.top_k = test::pick(random, 1, std::min(cluster.experts, 6));
    cluster.ranks_per_node = test::pick(random, 0, 4);
    const Counts demand = test::random_demand(random, cluster, test::pick(random, 0, 60), 1.0);
    const ScoreCurves curves = curves_of(random, cluster.experts);
    for (const char* name : {"lrmoe", "symi-sampled"}) {
      for (const Activations activations : {Activations::keep, Activations::recompute}) {
        const auto strategy =
            make_strategy(options_of(name, 0.01 * test::pick(random, 1, 99), activations));
        RouteInput input{cluster, demand, strategy->initial(cluster)};
        input.curves = round % 3 == 0 ? nullptr : &curves;
        input.draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kOne));
        input.placement = strategy->place(cluster, demand, input.placement, input.curves);
        const Plan plan = strategy->route(input);
        ASSERT_NO_THROW(check_plan(plan));
        const std::int64_t ratio = to_fixed(strategy->selection()->ratio);
        EXPECT_EQ(total_pairs(plan.quota),
                  (total_pairs(demand) * ratio + input.draw) >> kQuotaBits);
        EXPECT_EQ(total_pairs(plan.dropped), 0);
        // The same inputs, the same bytes.
        EXPECT_EQ(to_json(plan, 0).dump(), to_json(strategy->route(input), 0).dump());
      }
    }
  }
}

TEST(Lrmoe, RatioOneIsKeepAllWhateverTheMode) {
  test::Random random(52);
  const Cluster cluster{4, 16, 6, 4, 0};
  const Counts demand = test::random_demand(random, cluster, 100, 1.0);
  for (const Activations activations : {Activations::keep, Activations::recompute}) {
    for (const SelectMode mode : {SelectMode::sampled, SelectMode::top}) {
      auto options = options_of("lrmoe", 1.0, activations);
      options.lrmoe.mode = mode;
      const auto strategy = make_strategy(options);
      const Plan plan = strategy->route({cluster, demand, strategy->initial(cluster)});
      check_plan(plan);
      EXPECT_TRUE(plan.keep_all);
      EXPECT_EQ(plan.backward, plan.forward);
      EXPECT_EQ(plan.quota, demand);
      EXPECT_TRUE(plan.cells.empty());
      EXPECT_EQ(plan.added_variance, 0.0);
    }
  }
}

TEST(Lrmoe, OneExpertWithEverything) {
  const Cluster cluster{4, 8, 3, 1, 0};
  Counts demand(4, 8);
  for (int r = 0; r < 4; ++r) {
    demand.at(r, 5) = 1000;
  }
  for (const Activations activations : {Activations::keep, Activations::recompute}) {
    const auto strategy = make_strategy(options_of("lrmoe", 0.25, activations));
    RouteInput input{cluster, demand, strategy->initial(cluster)};
    // One instance: its rank must retain everything, and the plan says so.
    const Plan alone = strategy->route(input);
    check_plan(alone);
    EXPECT_EQ(total_pairs(alone.quota), 1000);
    ASSERT_EQ(alone.notes.size(), 1U);
    EXPECT_NE(alone.notes[0].find("300%"), std::string::npos) << alone.notes[0];
    // The next placement has it on every rank, and both phases are even.
    input.placement = strategy->place(cluster, demand, input.placement);
    const Plan even = strategy->route(input);
    check_plan(even);
    EXPECT_EQ(rank_loads(even.forward, 4), (std::vector<std::int64_t>(4, 1000)));
    EXPECT_EQ(rank_loads(even.backward, 4), (std::vector<std::int64_t>(4, 250)));
    EXPECT_TRUE(even.notes.empty());
  }
}

TEST(Lrmoe, NoPairsAndNoDemand) {
  const Cluster cluster{3, 5, 3, 2, 0};
  const auto strategy = make_strategy(options_of("lrmoe", 0.25, Activations::keep));
  const Placement start = strategy->initial(cluster);
  const Plan plan = strategy->route({cluster, Counts(3, 5), start});
  check_plan(plan);
  EXPECT_TRUE(plan.forward.empty());
  EXPECT_EQ(strategy->place(cluster, Counts(3, 5), start), start);
}

// Skewed demand that drifts; the placement is always a step old. Prints what it reaches.
TEST(Lrmoe, StaysBalancedUnderSkewAndDrift) {
  test::Random random(53);
  std::normal_distribution<double> normal;
  const Cluster cluster{8, 64, 10, 8, 0};
  for (const Activations activations : {Activations::keep, Activations::recompute}) {
    const auto strategy = make_strategy(options_of("lrmoe", 0.25, activations));
    const ScoreCurves curves = curves_of(random, cluster.experts);
    std::vector<double> logits;
    for (int e = 0; e < cluster.experts; ++e) {
      logits.push_back(-std::log(1.0 + e));
    }
    Placement placement = strategy->initial(cluster);
    double forward = 0.0;
    double backward = 0.0;
    constexpr int kSteps = 20;
    for (int step = -2; step < kSteps; ++step) {
      double sum = 0.0;
      for (double& logit : logits) {
        logit += 0.1 * normal(random);
        sum += std::exp(logit);
      }
      Counts demand(cluster.ranks, cluster.experts);
      for (int r = 0; r < cluster.ranks; ++r) {
        for (int e = 0; e < cluster.experts; ++e) {
          const double p = std::min(1.0, 8.0 * std::exp(logits[static_cast<std::size_t>(e)]) / sum);
          demand.at(r, e) = std::binomial_distribution<int>(2048, p)(random);
        }
      }
      RouteInput input{cluster, demand, placement, false, &curves};
      input.draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kOne));
      const Plan plan = strategy->route(input);
      if (step >= 0) {
        forward += imbalance(rank_loads(plan.forward, cluster.ranks)) / kSteps;
        backward += imbalance(rank_loads(plan.backward, cluster.ranks)) / kSteps;
      }
      placement = strategy->place(cluster, demand, placement, &curves);
    }
    std::cout << "imbalance (max / mean): forward " << forward << ", backward " << backward << "\n";
    EXPECT_LT(forward, 1.01);
    EXPECT_LT(backward, 1.02);  // the slack, and the draw's rounding
  }
}

TEST(Options, WrongOnesAreNamed) {
  const auto message = [](auto change) {
    StrategyOptions options = options_of("lrmoe", 0.25, Activations::keep);
    change(options.lrmoe);
    return test::message_of<InputError>([&] { make_strategy(options); });
  };
  EXPECT_NE(message([](LrmoeOptions& o) { o.ratio = 0.0; }).find("ratio"), std::string::npos);
  EXPECT_NE(message([](LrmoeOptions& o) { o.ratio = 1.5; }).find("at most 1"), std::string::npos);
  EXPECT_NE(message([](LrmoeOptions& o) { o.slack = -1; }).find("slack"), std::string::npos);
  EXPECT_NE(message([](LrmoeOptions& o) { o.floor = 2; }).find("floor"), std::string::npos);
  EXPECT_NE(message([](LrmoeOptions& o) { o.variance = -1; }).find("variance"), std::string::npos);
  EXPECT_NE(message([](LrmoeOptions& o) { o.shortlist = 0; }).find("shortlist"), std::string::npos);
}

TEST(Options, AVarianceCeilingSetsTheRatio) {
  test::Random random(54);
  const Cluster cluster{4, 16, 6, 4, 0};
  const Counts demand = test::random_demand(random, cluster, 500, 0.8);
  const ScoreCurves curves = curves_of(random, 16);
  double before = 2.0;
  for (const double ceiling : {0.02, 0.2, 1.0}) {
    auto options = options_of("lrmoe", 1.0, Activations::recompute);
    options.lrmoe.variance = ceiling;
    const auto strategy = make_strategy(options);
    RouteInput input{cluster, demand, strategy->initial(cluster), false, &curves};
    input.placement = strategy->place(cluster, demand, input.placement, &curves);
    const Plan plan = strategy->route(input);
    check_plan(plan);
    const double kept =
        static_cast<double>(total_pairs(plan.quota)) / static_cast<double>(total_pairs(demand));
    EXPECT_LT(kept, before);
    EXPECT_NEAR(plan.added_variance, ceiling, 0.05 * ceiling);
    before = kept;
  }
  // However much variance may be added, experts keep their floor.
  auto options = options_of("lrmoe", 1.0, Activations::recompute);
  options.lrmoe.variance = 1e9;
  options.lrmoe.floor = 0.04;
  const auto strategy = make_strategy(options);
  RouteInput input{cluster, demand, strategy->initial(cluster), false, &curves};
  input.placement = strategy->place(cluster, demand, input.placement, &curves);
  const Plan plan = strategy->route(input);
  check_plan(plan);
  EXPECT_NEAR(static_cast<double>(total_pairs(plan.quota)),
              0.04 * static_cast<double>(total_pairs(demand)), 4.0);
}

TEST(Memory, TermsOfASmallPlanByHand) {
  // Two ranks, one token each, k = 1: rank 0's goes to rank 1, rank 1's stays.
  Plan plan;
  plan.strategy = "fixed";
  plan.cluster = {2, 2, 1, 1, 0};
  plan.demand = Counts(2, 2);
  plan.demand.values = {0, 1, 0, 1};
  plan.quota = plan.demand;
  plan.dropped = Counts(2, 2);
  plan.placement = Placement(2, 1);
  plan.placement.values = {0, 1};
  plan.forward = {{0, 1, 1, 1}, {1, 1, 1, 1}};
  plan.backward = plan.forward;
  check_plan(plan);
  const auto terms = memory_terms(plan, {10, 4, 2, 2, 4, Activations::keep});
  EXPECT_EQ(terms[0].weights, 3 * 10 * 4 * 2);
  EXPECT_EQ(terms[0].gradients, 240);
  // Rank 0 has no pairs. Indices: 16 per pair sent, 24 per row sent, 8 per token.
  EXPECT_EQ(terms[0].activations, 16 + 24 + 8);
  EXPECT_EQ(terms[0].workspace, 0);
  EXPECT_EQ(terms[0].buffers, 2 * 1 * 10 * 2);  // rows back and o, or dx
  // Rank 1: P = N = 2, M = T = 1; indices, gates twice, x and g, u. Its peak is where y
  // is summed to rows in fp32: four rows of ten columns.
  EXPECT_EQ(terms[1].activations,
            16 + 24 + 8 + 2 * (32 + 8) + 2 * 2 * 4 + (2 * 10 + 2 * 2 * 4) * 2);
  EXPECT_EQ(terms[1].buffers, 2 * 10 * 2);
  EXPECT_EQ(terms[1].workspace, 2 * 10 * 2 + (2 + 2) * 10 * 4);
  EXPECT_EQ(fullest(terms), terms[1]);
}

TEST(Memory, RowsAreBetweenPairsOverKAndPairs) {
  EXPECT_EQ(expected_rows(100, 0, 4), 0);
  EXPECT_EQ(expected_rows(100, 400, 4), 100);
  EXPECT_EQ(expected_rows(100, 1, 4), 1);
  EXPECT_EQ(expected_rows(1000, 2000, 4), 938);  // 1000 (1 - 1/16) and the part of a row
}

TEST(Memory, RecomputeKeepsIndicesAlone) {
  test::Random random(55);
  const Cluster cluster{4, 16, 6, 4, 0};
  const Counts demand = test::random_demand(random, cluster, 200, 1.0);
  const auto terms_of = [&](Activations activations) {
    const auto strategy = make_strategy(options_of("lrmoe", 0.25, activations));
    const Plan plan = strategy->route({cluster, demand, strategy->initial(cluster)});
    return fullest(memory_terms(plan, {2048, 768, 2, 2, 4, activations}));
  };
  const auto keep = terms_of(Activations::keep);
  const auto recompute = terms_of(Activations::recompute);
  EXPECT_LT(recompute.activations, keep.activations / 20);
  EXPECT_LT(recompute.total(), keep.total());
}

}  // namespace
}  // namespace lrmoe::plan
