#include "lrmoe/plan/split.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

/// The least threshold by Hall's theorem: over every set of ranks, the pairs of
/// experts that stand nowhere else need ceil(pairs / ranks).
std::int64_t bound(const std::vector<std::int64_t>& pairs, const Instances& instances, int ranks) {
  std::int64_t largest = 0;
  for (unsigned set = 1; set < (1U << ranks); ++set) {
    std::int64_t inside = 0;
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      const bool only_here = std::all_of(instances[e].begin(), instances[e].end(),
                                         [&](std::int32_t r) { return (set >> r & 1U) != 0; });
      inside += only_here ? pairs[e] : 0;
    }
    const int size = __builtin_popcount(set);
    largest = std::max(largest, (inside + size - 1) / size);
  }
  return largest;
}

Instances random_instances(test::Random& random, int experts, int ranks) {
  Instances instances(static_cast<std::size_t>(experts));
  for (auto& there : instances) {
    there.push_back(test::pick(random, 0, ranks - 1));
    for (int r = 0; r < ranks; ++r) {
      if (r != there[0] && test::pick(random, 0, 3) == 0) {
        there.push_back(r);
      }
    }
    std::sort(there.begin(), there.end());
  }
  return instances;
}

TEST(MinMaxSplit, EqualsTheBoundOverAllSetsOfRanks) {
  test::Random random(21);
  for (int round = 0; round < 500; ++round) {
    const int ranks = test::pick(random, 1, 7);
    const int experts = test::pick(random, 1, 12);
    const Instances instances = random_instances(random, experts, ranks);
    std::vector<std::int64_t> pairs;
    for (int e = 0; e < experts; ++e) {
      pairs.push_back(test::pick(random, 0, 9) == 0 ? 500 : test::pick(random, 0, 60));
    }
    const MinMaxSplit split = min_max_split(pairs, instances, ranks);
    EXPECT_EQ(split.largest, bound(pairs, instances, ranks));
    for (int e = 0; e < experts; ++e) {
      std::int64_t placed = 0;
      for (int r = 0; r < ranks; ++r) {
        placed += split.loads.at(e, r);
      }
      EXPECT_EQ(placed, pairs[static_cast<std::size_t>(e)]);
    }
  }
}

TEST(MinMaxSplit, TheLocalOneIsAsGoodAndStaysLocalWhereItCan) {
  test::Random random(22);
  for (int round = 0; round < 200; ++round) {
    const Cluster cluster{test::pick(random, 1, 6), test::pick(random, 1, 9), 9, 1,
                          test::pick(random, 0, 3)};
    const Instances instances = random_instances(random, cluster.experts, cluster.ranks);
    const Counts pairs = test::random_demand(random, cluster, 50, 1.0);
    const auto all = pairs_per_expert(pairs);
    EXPECT_EQ(min_max_split(cluster, pairs, instances).largest,
              min_max_split(all, instances, cluster.ranks).largest);
  }
  // Everywhere an instance and even sources: nothing has to move.
  const Cluster cluster{4, 2, 2, 1, 0};
  const Counts even(4, 2, 10);
  const Instances everywhere = {{0, 1, 2, 3}, {0, 1, 2, 3}};
  const MinMaxSplit split = min_max_split(cluster, even, everywhere);
  for (const std::int64_t load : split.loads.values) {
    EXPECT_EQ(load, 10);
  }
}

TEST(MinMaxSplit, NoPairsAtAll) {
  EXPECT_EQ(min_max_split(std::vector<std::int64_t>{0, 0}, {{0}, {1}}, 2).largest, 0);
}

}  // namespace
}  // namespace lrmoe::plan
