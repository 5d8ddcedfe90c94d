// Rules that hold for every plan of every strategy, on random cases that shrink.
#include <array>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "lrmoe/plan/evenest.h"
#include "lrmoe/plan/json.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/random_case.h"

namespace lrmoe::plan {
namespace {

using namespace test;

/// The invariants of the file format, written down once more.
void check_independently(const Plan& plan) {
  using Key = std::array<int, 3>;
  std::map<Key, std::int64_t> forward, backward;
  std::map<std::array<int, 2>, std::int64_t> computed, kept;
  for (const Route& route : plan.forward) {
    forward[{route.source, route.expert, route.rank}] += route.pairs;
    computed[{route.source, route.expert}] += route.pairs;
  }
  for (const Route& route : plan.backward) {
    backward[{route.source, route.expert, route.rank}] += route.pairs;
    kept[{route.source, route.expert}] += route.pairs;
  }
  for (int r = 0; r < plan.cluster.ranks; ++r) {
    for (int e = 0; e < plan.cluster.experts; ++e) {
      const std::int64_t sum = computed[{r, e}] + plan.dropped.at(r, e);
      RC_ASSERT(sum == plan.demand.at(r, e));
      const std::int64_t retained = kept[{r, e}];
      RC_ASSERT(retained == plan.quota.at(r, e));
    }
  }
  for (const Split* split : {&plan.forward, &plan.backward}) {
    for (const Route& route : *split) {
      const auto row = plan.placement.row(route.rank);
      RC_ASSERT(std::find(row.begin(), row.end(), route.expert) != row.end());
    }
  }
  const bool stays = plan.keep_all || (!plan.cells.empty() && plan.cells[0].rank >= 0);
  if (stays) {
    for (const auto& [key, pairs] : backward) {
      const std::int64_t there = forward[key];
      RC_ASSERT(pairs <= there);
    }
  }
}

TEST(Property, EveryPlanKeepsItsRulesAndItsRanksFindTheirParts) {
  holds([] {
    const Case c = random_case(strategy_names());
    const auto strategy = make_strategy(c.options);
    const ScoreCurves curves = curves_of(c);
    const RouteInput input = input_of(c, *strategy, curves);
    const Plan plan = strategy->route(input);
    check_plan(plan);
    check_independently(plan);
    static RouteScratch scratch;
    const int rank = number(0, c.cluster.ranks - 1);
    RC_ASSERT(strategy->route_rank(input, rank, scratch) == part_of(plan, rank));
    if (!plan.keep_all && c.options.lrmoe.variance == 0.0) {
      // Quotas sum to the target: exactly, up to where the draw cuts the line.
      const std::int64_t offered = total_pairs(c.shortlist ? c.listed : c.demand);
      const auto target = static_cast<double>(total_pairs(c.demand)) * c.options.lrmoe.ratio;
      const double most = std::min(target, static_cast<double>(offered));
      RC_ASSERT(std::abs(static_cast<double>(total_pairs(plan.quota)) - most) <= 1.001);
    }
  });
}

TEST(Property, TheSameInputsGiveTheSameBytes) {
  holds([] {
    const Case c = random_case(strategy_names());
    const ScoreCurves curves = curves_of(c);
    const auto once = make_strategy(c.options);
    const auto again = make_strategy(c.options);
    const Plan plan = once->route(input_of(c, *once, curves));
    const Plan other = again->route(input_of(c, *again, curves));
    RC_ASSERT(to_json(plan, 0.0).dump() == to_json(other, 0.0).dump());
    RC_ASSERT(plan.cells == other.cells);
  });
}

// More slots leave the split more freedom; the placement keeps what it has where that is
// nearly as good.
TEST(Property, AnAddedInstanceNeverWorsensTheSplit) {
  holds([] {
    const int ranks = number(1, 8);
    const int experts = number(1, 12);
    Instances instances(static_cast<std::size_t>(experts));
    std::vector<std::int64_t> pairs;
    for (auto& there : instances) {
      there.push_back(number(0, ranks - 1));
      pairs.push_back(number(0, 200));
    }
    std::int64_t before = min_max_split(pairs, instances, ranks).largest;
    for (int added = number(1, 6); added > 0; --added) {
      auto& there = instances[static_cast<std::size_t>(number(0, experts - 1))];
      there.push_back(number(0, ranks - 1));
      std::sort(there.begin(), there.end());
      there.erase(std::unique(there.begin(), there.end()), there.end());
      const std::int64_t now = min_max_split(pairs, instances, ranks).largest;
      RC_ASSERT(now <= before);
      before = now;
    }
  });
}

// The fullest rank of the two phases on the demand that the placement was planned for:
// within the stickiness of 0.5%, whatever the weights.
TEST(Property, AnAddedSlotNeverWorsensTheBalance) {
  double worst = 0.0;
  double robust_worst = 0.0;
  int cases = 0;
  holds([&] {
    const int ranks = number(2, 20);
    const int experts = number(2, 6 * ranks);
    const int least = (experts + ranks - 1) / ranks;
    const int slots = least + number(0, 2);
    const auto eighths = [&](int octaves) {
      return *rc::gen::resize(
          rc::kNominalSize, rc::gen::container<std::vector<int>>(static_cast<std::size_t>(experts),
                                                                 rc::gen::inRange(0, 8 * octaves)));
    };
    const auto sizes = eighths(number(1, 6));
    const auto kept = eighths(number(1, 8));  // of an expert's pairs, as scores may have it
    std::vector<std::int64_t> forward, backward;
    for (std::size_t e = 0; e < sizes.size(); ++e) {
      const std::int64_t pairs = std::int64_t{8 + sizes[e] % 8} << (4 + sizes[e] / 8);
      forward.push_back(pairs);
      backward.push_back(pairs * (std::int64_t{8 + kept[e] % 8} << (4 + kept[e] / 8)));
    }
    const auto share = [&](const Placement& placement) {
      return static_cast<double>(fullest_share(placement, forward, backward));
    };
    const Cluster fewer{ranks, experts, slots, 1, 0};
    const Cluster more{ranks, experts, slots + 1, 1, 0};
    const double before = share(place_evenest(fewer, forward, backward));
    const double now = share(place_evenest(more, forward, backward));
    RC_ASSERT(now <= before * 1.005);
    worst = std::max(worst, now / before - 1.0);
    robust_worst = std::max(robust_worst, share(place_robust(more, forward, backward)) /
                                                  share(place_robust(fewer, forward, backward)) -
                                              1.0);
    ++cases;
  });
  std::cout << "a slot more: the fullest rank " << 100 * worst << "% fuller at most ("
            << 100 * robust_worst << "% where fewer slots are not tried), of " << cases
            << " cases\n";
}

// The same of the planner itself, on its own quotas.
TEST(Property, AnAddedSlotNeverWorsensAPlacementOfLrmoe) {
  int cases = 0;
  holds([&] {
    Case c = random_case({"lrmoe"});
    if (c.cluster.slots >= c.cluster.experts || total_pairs(c.demand) == 0) {
      return;
    }
    const auto strategy = make_strategy(c.options);
    const ScoreCurves curves = curves_of(c);
    const auto pairs = pairs_per_expert(c.demand);
    const auto quota =
        quota_without_ranks(&curves, pairs, quota_settings(c.options.lrmoe, &curves, pairs));
    const auto share = [&](const Cluster& cluster) {
      const Placement placement =
          strategy->place(cluster, c.demand, strategy->initial(cluster), &curves);
      return static_cast<double>(fullest_share(placement, pairs, quota));
    };
    Cluster more = c.cluster;
    ++more.slots;
    RC_ASSERT(share(more) <= share(c.cluster) * 1.005);
    ++cases;
  });
  EXPECT_GT(cases, 500);
}

}  // namespace
}  // namespace lrmoe::plan
