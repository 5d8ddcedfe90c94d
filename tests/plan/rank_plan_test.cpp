// A rank's part of a plan in closed form is that of the whole plan.
#include "lrmoe/plan/rank_plan.h"

#include <gtest/gtest.h>

#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/outline.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

TEST(RankPlan, IsThePartOfTheWholePlan) {
  test::Random random(71);
  RouteScratch scratch;  // one for all: nothing of an earlier plan may show
  int kept = 0;
  int split = 0;
  for (int round = 0; round < 1500; ++round) {
    Cluster cluster{test::pick(random, 1, 12), test::pick(random, 1, 24), 0, 1, 0};
    cluster.slots =
        std::min(cluster.experts,
                 (cluster.experts + cluster.ranks - 1) / cluster.ranks + test::pick(random, 0, 3));
    cluster.ranks_per_node = test::pick(random, 0, 5);
    const Counts demand = test::sparse_counts(random, cluster, 60);
    const ScoreCurves curves = test::lognormal_curves(random, cluster.experts, 40);
    Counts listed = demand;
    for (auto& pairs : listed.values) {
      pairs = test::pick(random, 0, pairs);
    }
    StrategyOptions options;
    options.name = round % 5 == 0 ? "symi-sampled" : "lrmoe";
    options.lrmoe.ratio = round % 11 == 0 ? 1.0 : 0.01 * test::pick(random, 1, 99);
    options.lrmoe.variance = round % 7 == 0 ? 0.3 : 0.0;
    options.lrmoe.variance_limit = round % 13 == 0 ? 0.2 : 0.0;
    options.lrmoe.activations =
        test::pick(random, 0, 1) == 0 ? Activations::keep : Activations::recompute;
    const auto strategy = make_strategy(options);
    RouteInput input{cluster, demand, strategy->initial(cluster)};
    input.evaluate = round % 17 == 0;
    input.curves = round % 3 == 0 ? nullptr : &curves;
    input.listed = round % 4 == 0 ? &listed : nullptr;
    input.draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kOne));
    input.placement = strategy->place(cluster, demand, input.placement, input.curves);
    const Plan whole = strategy->route(input);
    ASSERT_NO_THROW(check_plan(whole));
    for (int rank = 0; rank < cluster.ranks; ++rank) {
      const RankPlan part = strategy->route_rank(input, rank, scratch);
      ASSERT_EQ(part, part_of(whole, rank)) << "round " << round << ", rank " << rank;
    }
    kept += whole.keep_all ? 0 : 1;
    split += whole.forward.size() > static_cast<std::size_t>(std::ranges::count_if(
                                        demand.values, [](int v) { return v > 0; }))
                 ? 1
                 : 0;
  }
  EXPECT_GT(kept, 900);
  EXPECT_GT(split, 500);
}

}  // namespace
}  // namespace lrmoe::plan
