// Exchange of forward pairs between ranks that hold the same two experts.
#include "lrmoe/plan/exchange.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "lrmoe/plan/split.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

/// Sums of loads (times share, if there are any) by what `of` says of each instance.
std::vector<std::int64_t> sums(const InstanceIndex& index, const std::vector<std::int64_t>& loads,
                               int size, const auto& of,
                               const std::vector<std::int64_t>& share = {}) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(size), 0);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const std::int64_t each = share.empty() ? 1 : share[static_cast<std::size_t>(index.expert[i])];
    out[static_cast<std::size_t>(of(i))] += loads[i] * each;
  }
  return out;
}

// Both ranks compute 100 pairs; of expert 0 half are kept, of expert 1 a tenth. Kept are
// 50 and 10; even is 30 and 30, with 50 pairs of each expert on each rank.
TEST(Exchange, EvensOutWhatTwoRanksKeep) {
  InstanceIndex index;
  index.build(Instances{{0, 1}, {0, 1}}, 2);
  const std::vector<std::int64_t> share{5, 1};
  std::vector<std::int64_t> loads{100, 0, 0, 100};
  EXPECT_EQ(Exchange().run(index, share, 300, 2, loads), 0);
  EXPECT_EQ(loads, (std::vector<std::int64_t>{50, 50, 50, 50}));
  // No more than the capacity asks for: 340 and 260 need 40 pairs of each.
  loads = {100, 0, 0, 100};
  EXPECT_EQ(Exchange().run(index, share, 340, 2, loads), 0);
  EXPECT_EQ(loads, (std::vector<std::int64_t>{60, 40, 40, 60}));
  // Over nodes nothing is exchanged: 500 stay 160 above.
  loads = {100, 0, 0, 100};
  EXPECT_EQ(Exchange().run(index, share, 340, 1, loads), 160);
  EXPECT_EQ(loads, (std::vector<std::int64_t>{100, 0, 0, 100}));
}

// Rank 0 is too full and shares its experts with rank 1 only, which is full itself and
// has to pass on to rank 2.
TEST(Exchange, PassesOnWhatANeighbourCannotTake) {
  InstanceIndex index;
  index.build(Instances{{0, 1, 2}, {0, 1}, {1, 2}}, 3);
  const std::vector<std::int64_t> share{6, 2, 1};
  // Expert 0: 60, 40, 0; expert 1: 0, 20; expert 2: 0, 60.
  std::vector<std::int64_t> loads{60, 40, 0, 0, 20, 0, 60};
  const std::int64_t mean = (60 * 6 + 40 * 6 + 20 * 2 + 60) / 3;
  EXPECT_LT(Exchange().run(index, share, mean, 3, loads), mean / 4);  // 126 + 46 before
  EXPECT_EQ(sums(index, loads, 3, [&](std::size_t i) { return index.rank[i]; }),
            (std::vector<std::int64_t>{60, 60, 60}));
}

RC_GTEST_PROP(Exchange, MovesNothingButWhatIsKept, (std::uint64_t seed)) {
  test::Random random(seed);
  const Cluster cluster{test::pick(random, 2, 12), test::pick(random, 2, 24), 0, 1, 0};
  const int node_width = test::pick(random, 1, cluster.ranks);
  Instances instances;
  std::vector<std::int64_t> pairs, share;
  for (int e = 0; e < cluster.experts; ++e) {
    std::vector<std::int32_t> on;
    for (int r = 0; r < cluster.ranks; ++r) {
      if (test::pick(random, 0, 2) == 0) {
        on.push_back(r);
      }
    }
    if (on.empty()) {
      on.push_back(test::pick(random, 0, cluster.ranks - 1));
    }
    instances.push_back(std::move(on));
    pairs.push_back(test::pick(random, 0, 2000));
    share.push_back(test::pick(random, 0, 1 << 20));
  }
  InstanceIndex index;
  index.build(instances, cluster.ranks);
  const MinMaxSplit split = min_max_split(pairs, instances, cluster.ranks);
  std::vector<std::int64_t> before;
  for (std::size_t i = 0; i < index.rank.size(); ++i) {
    before.push_back(split.loads.at(index.expert[i], index.rank[i]));
  }
  const auto rank_of = [&](std::size_t i) { return index.rank[i]; };
  const auto kept = sums(index, before, cluster.ranks, rank_of, share);
  std::int64_t all = 0;
  for (const std::int64_t k : kept) {
    all += k;
  }
  const std::int64_t capacity = all / cluster.ranks + 1;
  std::vector<std::int64_t> after = before;
  const std::int64_t above = Exchange().run(index, share, capacity, node_width, after);
  RC_ASSERT(std::ranges::all_of(after, [](std::int64_t load) { return load >= 0; }));
  RC_ASSERT(sums(index, after, cluster.ranks, rank_of) ==
            sums(index, before, cluster.ranks, rank_of));
  const auto expert_and_node = [&](std::size_t i) {
    return index.expert[i] * cluster.ranks + index.rank[i] / node_width;
  };
  const int cells = cluster.experts * cluster.ranks;
  RC_ASSERT(sums(index, after, cells, expert_and_node) ==
            sums(index, before, cells, expert_and_node));
  const auto kept_after = sums(index, after, cluster.ranks, rank_of, share);
  RC_ASSERT(*std::ranges::max_element(kept_after) <= *std::ranges::max_element(kept));
  const auto excess = [&](const std::vector<std::int64_t>& loads) {
    std::int64_t sum = 0;
    for (const std::int64_t load : loads) {
      sum += std::max<std::int64_t>(load - capacity, 0);
    }
    return sum;
  };
  RC_ASSERT(above == excess(kept_after));
  RC_ASSERT(above <= excess(kept));
  RC_CLASSIFY(above < excess(kept), "something was exchanged");
}

}  // namespace
}  // namespace lrmoe::plan
