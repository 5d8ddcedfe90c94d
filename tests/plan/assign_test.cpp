#include "lrmoe/plan/assign.h"

#include <gtest/gtest.h>

#include <tuple>

#include "lrmoe/base/error.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

TEST(AssignSources, LocalThenNodeThenAnywhere) {
  const Cluster cluster{4, 1, 1, 1, 2};  // nodes {0, 1} and {2, 3}
  Counts pairs(4, 1);
  pairs.at(0, 0) = 10;
  pairs.at(2, 0) = 6;
  pairs.at(3, 0) = 4;
  Loads loads(1, 4);
  loads.at(0, 0) = 5;   // takes half of rank 0's
  loads.at(0, 1) = 2;   // two more stay in the node, three leave it
  loads.at(0, 2) = 13;  // all of 2, all of 3, the three of 0
  const Split expected = {{0, 0, 0, 5}, {0, 0, 1, 2}, {0, 0, 2, 3}, {2, 0, 2, 6}, {3, 0, 2, 4}};
  EXPECT_EQ(assign_sources(cluster, pairs, loads), expected);
}

TEST(AssignSources, SumsThatDifferAreOurOwnError) {
  Counts pairs(1, 1);
  pairs.at(0, 0) = 3;
  EXPECT_THROW(assign_sources({1, 1, 1, 1, 0}, pairs, Loads(1, 1)), InternalError);
}

TEST(AssignSources, RandomCasesKeepBothMargins) {
  test::Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int ranks = test::pick(random, 1, 9);
    const int experts = test::pick(random, 1, 7);
    const Cluster cluster{ranks, experts, experts, 1, test::pick(random, 0, 4)};
    Counts pairs(ranks, experts);
    Loads loads(experts, ranks);
    for (int e = 0; e < experts; ++e) {
      for (int r = 0; r < ranks; ++r) {
        const int n = test::pick(random, 0, 30);
        pairs.at(r, e) = n;
        for (int i = 0; i < n; ++i) {
          ++loads.at(e, test::pick(random, 0, ranks - 1));
        }
      }
    }
    const Split split = assign_sources(cluster, pairs, loads);
    EXPECT_EQ(source_counts(split, ranks, experts), pairs);
    EXPECT_EQ(expert_loads(split, experts, ranks), loads);
    for (std::size_t i = 1; i < split.size(); ++i) {
      EXPECT_LT(std::tie(split[i - 1].source, split[i - 1].expert, split[i - 1].rank),
                std::tie(split[i].source, split[i].expert, split[i].rank));
    }
    // As much stays local as both sides allow.
    Counts local(ranks, experts);
    for (const Route& route : split) {
      if (route.source == route.rank) {
        local.at(route.source, route.expert) = route.pairs;
      }
    }
    for (int e = 0; e < experts; ++e) {
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(local.at(r, e), std::min<std::int64_t>(pairs.at(r, e), loads.at(e, r)));
      }
    }
  }
}

TEST(Apportion, LargestRemainderTiesToTheLowest) {
  // 5 over 1:1:1 is 1 2/3 each: floors 1 1 1, the two left to the first two.
  EXPECT_EQ(apportion(5, {1, 1, 1}), (std::vector<std::int64_t>{2, 2, 1}));
  // 10 over 7:2:1:5 is 4 2/3, 1 1/3, 2/3, 3 1/3: floors 4 1 0 3, then 0 and 2.
  EXPECT_EQ(apportion(10, {7, 2, 1, 5}), (std::vector<std::int64_t>{5, 1, 1, 3}));
  EXPECT_EQ(apportion(0, {3, 4}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(apportion(0, {0, 0}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(apportion(7, {3, 0, 4}), (std::vector<std::int64_t>{3, 0, 4}));
}

}  // namespace
}  // namespace lrmoe::plan
