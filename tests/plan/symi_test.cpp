#include "lrmoe/plan/symi.h"

#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/even.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

using Numbers = std::vector<std::int32_t>;

Numbers counts(std::vector<std::int64_t> popularity, int slots) {
  return symi_counts(popularity, slots);
}

// Worked by hand: goal = popularity / sum * slots, count = floor(max(goal, 1)).
TEST(SymiCounts, ExactGoalsStayAsTheyAre) {
  EXPECT_EQ(counts({10, 20, 30, 20}, 8), (Numbers{1, 2, 3, 2}));
}

TEST(SymiCounts, RaisesTheOneFarthestBelowItsGoal) {
  // sum 10, goals 3.5 2.8 0.7: counts 3 2 1 (6 of 7). count - goal: -0.5 -0.8 0.3.
  EXPECT_EQ(counts({5, 4, 1}, 7), (Numbers{3, 3, 1}));
  // sum 16, 10 slots: goals 4.375 4.375 1.25: counts 4 4 1 (9); -0.375 -0.375 -0.25,
  // a tie: the lowest expert.
  EXPECT_EQ(counts({7, 7, 2}, 10), (Numbers{5, 4, 1}));
}

TEST(SymiCounts, LowersTheOneFarthestAboveItsGoal) {
  // sum 100, 8 slots: goals 7.2 0.32 0.24 0.24: counts 7 1 1 1 (10). Only the first
  // may fall: 6, 5.
  EXPECT_EQ(counts({90, 4, 3, 3}, 8), (Numbers{5, 1, 1, 1}));
  // sum 100, 8 slots: goals 3.52 3.84 0.24 0.24 0.16: counts 3 3 1 1 1 (9).
  // count - goal of those above 1: -0.52 -0.84: the first falls.
  EXPECT_EQ(counts({44, 48, 3, 3, 2}, 8), (Numbers{2, 3, 1, 1, 1}));
  // goals 3.68 3.68 0.24 0.24 0.16: a tie, the lowest falls.
  EXPECT_EQ(counts({46, 46, 3, 3, 2}, 8), (Numbers{2, 3, 1, 1, 1}));
  // sum 120, 12 slots: goals 6.5 4.6 0.3 0.3 0.2 0.1: counts 6 4 1 1 1 1 (14).
  // -0.5 -0.6: first to 5 (-1.5), then the second to 3.
  EXPECT_EQ(counts({65, 46, 3, 3, 2, 1}, 12), (Numbers{5, 3, 1, 1, 1, 1}));
}

TEST(SymiCounts, NoPopularityIsAnEvenOne) {
  EXPECT_EQ(counts({0, 0, 0}, 8), (Numbers{3, 3, 2}));
  EXPECT_EQ(counts({0, 0, 0, 0}, 4), (Numbers{1, 1, 1, 1}));
}

TEST(SymiCounts, AnExpertWithoutTokensKeepsOneSlot) {
  // goals 4 0 4: counts 4 1 4 (9 of 8); above 1 both at 0: the lowest falls.
  EXPECT_EQ(counts({10, 0, 10}, 8), (Numbers{3, 1, 4}));
}

TEST(SymiCounts, EverythingToOneExpert) {
  EXPECT_EQ(counts({0, 0, 500, 0}, 16), (Numbers{1, 1, 13, 1}));
}

TEST(SymiCounts, GoalsThatDoublesWouldRoundAreExact) {
  // Sums beyond 2^53: as doubles the three goals of 4/3 are one number, and the
  // first would be raised; the second is the farthest below.
  const std::int64_t big = 10'000'000'000'000'000;
  EXPECT_EQ(counts({big, big, big}, 9), (Numbers{3, 3, 3}));
  EXPECT_EQ(counts({big, big + 1, big}, 4), (Numbers{1, 2, 1}));
}

TEST(SymiPlacement, ContiguousAndMayShareARank) {
  const Cluster cluster{2, 3, 4, 1, 0};
  // goals 5 2 1.
  Placement expected(2, 4);
  expected.values = {0, 0, 0, 0, 0, 1, 1, 2};
  EXPECT_EQ(symi_placement(cluster, std::vector<std::int64_t>{50, 20, 10}), expected);
}

TEST(Symi, StartsFromUniformPopularityAndFollowsTheDemand) {
  StrategyOptions options{.name = "symi"};
  const auto symi = make_strategy(options);
  EXPECT_FALSE(symi->owns_experts());
  const Cluster cluster{2, 3, 2, 1, 0};
  Placement start(2, 2);
  start.values = {0, 0, 1, 2};  // goals 4/3 each: one more to the lowest
  EXPECT_EQ(symi->initial(cluster), start);
  Counts demand(2, 3);
  demand.at(0, 2) = 60;
  demand.at(1, 1) = 30;
  Placement next(2, 2);
  next.values = {0, 1, 2, 2};  // goals 0 1.33 2.67: counts 1 1 2
  EXPECT_EQ(symi->place(cluster, demand, start), next);
}

TEST(Symi, DropsAreDemandMinusCapacity) {
  const Cluster cluster{2, 2, 2, 1, 0};
  RouteInput input{cluster, Counts(2, 2), Placement(2, 2)};
  input.placement.values = {0, 0, 0, 1};  // three slots and one
  input.demand.values = {31, 29,          // rank 0
                         10, 30};         // rank 1
  // 100 pairs, 4 slots: capacity 25 a slot. Expert 0: 41 of 75, none dropped;
  // expert 1: 59 of 25, 34 dropped: 29/59 * 34 = 16.7, 30/59 * 34 = 17.3.
  const auto symi = make_strategy({.name = "symi", .capacity_factor = 1.0});
  const Plan plan = symi->route(input);
  check_plan(plan);
  EXPECT_EQ(plan.dropped.values, (Numbers{0, 17, 0, 17}));
  // Expert 0 over its slots: 14 14 13: 28 on rank 0, 13 on rank 1.
  const Split expected = {{0, 0, 0, 28}, {0, 0, 1, 3}, {0, 1, 1, 12}, {1, 0, 1, 10}, {1, 1, 1, 13}};
  EXPECT_EQ(plan.forward, expected);
  EXPECT_EQ(plan.backward, plan.forward);

  input.evaluate = true;
  EXPECT_EQ(total_pairs(symi->route(input).dropped), 0);
  input.evaluate = false;
  EXPECT_EQ(total_pairs(make_strategy({.name = "symi"})->route(input).dropped), 0);
}

TEST(Capacity, IsReadToSixDecimals) {
  EXPECT_EQ(capacity_of(1.0, 100, 4), 25);
  EXPECT_EQ(capacity_of(1.15, 100, 5), 23);  // 22.999... in doubles
  EXPECT_EQ(capacity_of(1.25, 10, 4), 3);
  EXPECT_EQ(capacity_of(1.5, 4'000'000'000'000, 2), 3'000'000'000'000);
  EXPECT_EQ(capacity_of(std::numeric_limits<double>::infinity(), 100, 4), kNoCapacity);
}

}  // namespace
}  // namespace lrmoe::plan
