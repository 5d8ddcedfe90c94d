// What every strategy keeps, and what the registry says to wrong input.
#include "lrmoe/plan/strategy.h"

#include <gtest/gtest.h>

#include <limits>

#include "lrmoe/base/error.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

using test::message_of;

TEST(Fixed, ExpertsStandAtTheFloor) {
  const auto fixed = make_strategy({.name = "fixed"});
  EXPECT_TRUE(fixed->owns_experts());
  Placement expected(3, 2);
  expected.values = {0, 1, 2, 3, 4, -1};  // floor(3e/5) = 0 0 1 1 2
  EXPECT_EQ(fixed->initial({3, 5, 2, 1, 0}), expected);
  Placement few(4, 1);
  few.values = {0, -1, 1, -1};  // E < R: floor(4e/2) = 0 2
  EXPECT_EQ(fixed->initial({4, 2, 1, 1, 0}), few);
  Placement spare(2, 3);
  spare.values = {0, -1, -1, 1, -1, -1};  // more slots than needed stay empty
  EXPECT_EQ(fixed->initial({2, 2, 3, 1, 0}), spare);
}

TEST(FixedCapacity, DropsTheOverflowOfEachExpert) {
  const Cluster cluster{2, 2, 1, 1, 0};
  const auto strategy = make_strategy({.name = "fixed-capacity", .capacity_factor = 1.2});
  EXPECT_TRUE(strategy->owns_experts());
  RouteInput input{cluster, Counts(2, 2), strategy->initial(cluster)};
  input.demand.values = {40, 10, 40, 10};  // capacity floor(1.2 * 100 / 2) = 60
  const Plan plan = strategy->route(input);
  check_plan(plan);
  EXPECT_EQ(plan.dropped.values, (std::vector<std::int32_t>{10, 0, 10, 0}));
  input.evaluate = true;
  EXPECT_EQ(total_pairs(strategy->route(input).dropped), 0);
}

// Random clusters and demands: every plan passes check_plan (so forward + dropped
// = demand for each source and expert), says the same twice and drops nothing when dropless.
TEST(AllStrategies, RandomCasesKeepTheRules) {
  test::Random random(11);
  for (int round = 0; round < 300; ++round) {
    Cluster cluster{test::pick(random, 1, 8), test::pick(random, 1, 12), 0, 0, 0};
    cluster.slots =
        (cluster.experts + cluster.ranks - 1) / cluster.ranks + test::pick(random, 0, 3);
    cluster.top_k = round % 5 == 0 ? cluster.experts : test::pick(random, 1, cluster.experts);
    cluster.ranks_per_node = test::pick(random, 0, 3);
    Counts demand = test::random_demand(random, cluster, test::pick(random, 0, 20), 1.2);
    if (round % 7 == 0) {  // everything to one expert
      demand = Counts(cluster.ranks, cluster.experts);
      for (int r = 0; r < cluster.ranks; ++r) {
        demand.at(r, cluster.experts - 1) = test::pick(random, 0, 50);
      }
    }
    for (const std::string& name : strategy_names()) {
      for (const double factor : {0.5, 1.0, std::numeric_limits<double>::infinity()}) {
        StrategyOptions options;
        options.name = name;
        options.capacity_factor = factor;
        const auto strategy = make_strategy(options);
        EXPECT_EQ(strategy->name(), name);
        const Placement first = strategy->initial(cluster);
        const Placement placement = strategy->place(cluster, demand, first);
        EXPECT_EQ(placement, strategy->place(cluster, demand, first));
        for (const Placement& p : {first, placement}) {
          RouteInput input{cluster, demand, p};
          input.draw = static_cast<std::int64_t>(random() % (1ULL << kQuotaBits));
          const Plan plan = strategy->route(input);
          ASSERT_NO_THROW(check_plan(plan)) << name;
          EXPECT_EQ(plan.strategy, name);
          const Plan again = strategy->route(input);
          EXPECT_EQ(plan.forward, again.forward);
          EXPECT_EQ(plan.backward, again.backward);
          EXPECT_EQ(plan.cells, again.cells);
          if (factor > 1e6) {
            EXPECT_EQ(total_pairs(plan.dropped), 0);
          }
          input.evaluate = true;
          const Plan whole = strategy->route(input);
          EXPECT_TRUE(whole.keep_all);
          EXPECT_EQ(whole.quota, demand);
        }
      }
    }
  }
}

TEST(Activations, AreComputedAgainWherePairsAreLeftOut) {
  const auto mode = [](const char* name, const auto& set) {
    StrategyOptions options{.name = name};
    set(options.lrmoe);
    const auto strategy = make_strategy(options);
    const Cluster cluster{2, 4, 3, 2, 0};
    Plan plan = strategy->route({cluster, Counts(2, 4, 10), strategy->initial(cluster)});
    EXPECT_EQ(plan.activations, activations_of(options)) << name;
    return plan.activations;
  };
  const auto as_it_is = [](LrmoeOptions&) {};
  for (const char* name : {"lrmoe", "symi-sampled"}) {
    EXPECT_EQ(mode(name, as_it_is), Activations::recompute);
    EXPECT_EQ(mode(name, [](LrmoeOptions& o) { o.ratio = 1.0; }), Activations::keep);
    EXPECT_EQ(mode(name, [](LrmoeOptions& o) { o.ratio = 1.0, o.variance = 0.5; }),
              Activations::recompute);
    EXPECT_EQ(mode(name, [](LrmoeOptions& o) { o.ratio = 1.0, o.shortlist = 0.5; }),
              Activations::recompute);
    EXPECT_EQ(mode(name, [](LrmoeOptions& o) { o.activations = Activations::keep; }),
              Activations::keep);
  }
  for (const char* name : {"fixed", "fixed-capacity", "symi", "eplb"}) {
    EXPECT_EQ(mode(name, as_it_is), Activations::keep);
    EXPECT_EQ(mode(name, [](LrmoeOptions& o) { o.activations = Activations::recompute; }),
              Activations::recompute);
  }
}

TEST(Errors, NameTheMistakeAndTheRemedy) {
  const std::string unknown = message_of<InputError>([] { make_strategy({.name = "sysmi"}); });
  EXPECT_NE(unknown.find("\"sysmi\""), std::string::npos);
  for (const std::string& name : strategy_names()) {
    EXPECT_NE(unknown.find(name), std::string::npos);
  }
  EXPECT_NE(message_of<InputError>([] {
              check_cluster({4, 10, 2, 1, 0});
            }).find("at least 3"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              check_cluster({4, 10, 3, 11, 0});
            }).find("at most 10"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              check_cluster({0, 10, 3, 1, 0});
            }).find("ranks"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              check_cluster({1, 10, 0, 1, 0});
            }).find("slots"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              check_cluster({1, 10, 10, 0, 0});
            }).find("top_k"),
            std::string::npos);
  EXPECT_NO_THROW(check_cluster({4, 10, 3, 10, 0}));
  for (const double factor : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    for (const char* name : {"symi", "fixed-capacity"}) {
      StrategyOptions options{.name = name, .capacity_factor = factor};
      EXPECT_NE(message_of<InputError>([&] { make_strategy(options); }).find("capacity_factor"),
                std::string::npos);
    }
  }
  EXPECT_THROW(make_strategy({.name = "symi"})->initial({4, 10, 2, 1, 0}), InputError);
}

}  // namespace
}  // namespace lrmoe::plan
