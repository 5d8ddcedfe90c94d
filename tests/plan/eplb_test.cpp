#include "lrmoe/plan/eplb.h"

#include <gtest/gtest.h>

#include "lrmoe/plan/place.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

using Numbers = std::vector<std::int32_t>;

// The example of EPLB's README: 12 experts, 16 replicas, 8 GPUs, one group and
// one node (the global policy).
TEST(Eplb, GivesThePublishedAnswers) {
  const std::vector<std::int64_t> first = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const std::vector<std::int64_t> second = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  EXPECT_EQ(eplb_as_published(first, 8, 2).values,
            (Numbers{10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}));
  EXPECT_EQ(eplb_as_published(second, 8, 2).values,
            (Numbers{1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7}));
}

TEST(Eplb, TheStrategyKeepsInstancesApart) {
  // As published, expert 1 stands twice on the last GPU, expert 8 on the seventh.
  const Cluster cluster{8, 12, 2, 1, 0};
  const auto eplb = make_strategy({.name = "eplb"});
  Counts demand(8, 12);
  const Numbers weights = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  std::copy(weights.begin(), weights.end(), demand.row(3).begin());
  const Placement placement = eplb->place(cluster, demand, eplb->initial(cluster));
  for (int r = 0; r < 8; ++r) {
    EXPECT_NE(placement.at(r, 0), placement.at(r, 1));
  }
  check_plan(eplb->route({cluster, demand, placement}));
}

TEST(GreedyReplicas, GoToTheLargestPerInstanceUpToTheMost) {
  // 12 5 3, then 6 5 3, 4 5 3, 4 2.5 3.
  EXPECT_EQ(greedy_replicas(std::vector<std::int64_t>{12, 5, 3}, 6, 9),
            (Numbers{0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(greedy_replicas(std::vector<std::int64_t>{12, 5, 3}, 6, 2),
            (Numbers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(greedy_replicas(std::vector<std::int64_t>{12, 5, 3}, 9, 2),
            (Numbers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(greedy_replicas(std::vector<std::int64_t>{4, 4, 4}, 4, 2), (Numbers{0, 1, 2, 0}));
}

}  // namespace
}  // namespace lrmoe::plan
