// Placement: even in both phases, and still even when demand has changed.
#include "lrmoe/plan/robust.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <numeric>

#include "lrmoe/plan/excess.h"
#include "lrmoe/plan/fill.h"
#include "lrmoe/plan/place.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

using Weights = std::vector<std::int64_t>;

Weights skewed(test::Random& random, int experts, double skew) {
  std::normal_distribution<double> normal(0.0, skew);
  Weights weights;
  for (int e = 0; e < experts; ++e) {
    weights.push_back(static_cast<std::int64_t>(1e5 * std::exp(normal(random))));
  }
  return weights;
}

std::int64_t sum(const Weights& weights) {
  return std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
}

double unequal(const Weights& weights, const Placement& placement) {
  const auto experts = static_cast<int>(weights.size());
  const auto largest =
      min_max_split(weights, instances_of(placement, experts), placement.rows).largest;
  return static_cast<double>(largest) * placement.rows / static_cast<double>(sum(weights));
}

/// Every expert somewhere, on a rank at most once, and empty slots last.
void expect_sound(const Placement& placement, int experts) {
  for (const auto& ranks : slots_of_experts(placement, experts)) {
    ASSERT_FALSE(ranks.empty());
    ASSERT_EQ(std::adjacent_find(ranks.begin(), ranks.end()), ranks.end());
  }
  for (int r = 0; r < placement.rows; ++r) {
    const auto row = placement.row(r);
    ASSERT_TRUE(std::is_sorted(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
    }));
  }
}

RC_GTEST_PROP(PlaceRobust, EveryExpertStandsSomewhereWhateverTheWeights, ()) {
  const int ranks = *rc::gen::inRange(1, 20);
  const int slots = *rc::gen::inRange(1, 8);
  const int experts = *rc::gen::inRange(1, ranks * slots + 1);
  const auto weight = rc::gen::map(rc::gen::inRange(0, 40), [](int x) {
    return x < 8 ? std::int64_t{0} : std::int64_t{1} << x;  // from nothing to nearly all
  });
  const auto forward = *rc::gen::container<Weights>(static_cast<std::size_t>(experts), weight);
  const auto backward = *rc::gen::container<Weights>(static_cast<std::size_t>(experts), weight);
  const Cluster cluster{ranks, experts, slots, 1, 0};
  RobustSettings settings;
  settings.tied = *rc::gen::arbitrary<bool>();
  const Placement placement = place_robust(cluster, forward, backward, settings);
  expect_sound(placement, experts);
  RC_ASSERT(placement == place_robust(cluster, forward, backward, settings));
}

RC_GTEST_PROP(PlaceRobust, ExpertsNumbersDoNotMatter, (std::uint64_t seed)) {
  test::Random random(seed);
  const Cluster cluster{test::pick(random, 2, 12), test::pick(random, 8, 40), 0, 1, 0};
  Cluster c = cluster;
  c.slots = (c.experts + c.ranks - 1) / c.ranks + test::pick(random, 0, 2);
  const Weights forward = skewed(random, c.experts, 1.0);
  const Weights backward = skewed(random, c.experts, 1.0);
  std::vector<int> order(forward.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Weights other_forward, other_backward;
  for (const int e : order) {
    other_forward.push_back(forward[static_cast<std::size_t>(e)]);
    other_backward.push_back(backward[static_cast<std::size_t>(e)]);
  }
  RobustSettings settings;
  settings.tied = test::pick(random, 0, 1) == 1;
  const Placement one = place_robust(c, forward, backward, settings);
  const Placement two = place_robust(c, other_forward, other_backward, settings);
  RC_ASSERT(unequal(forward, one) == unequal(other_forward, two));
  RC_ASSERT(unequal(backward, one) == unequal(other_backward, two));
}

// The flow inside the search against the planner's own split.
RC_GTEST_PROP(ReplicaFlow, ExcessIsThatOfTheExactSplit, (std::uint64_t seed)) {
  test::Random random(seed);
  const int ranks = test::pick(random, 1, 12);
  const int slots = test::pick(random, 1, 6);
  const int experts = test::pick(random, 1, ranks * slots);
  const Weights weights = skewed(random, experts, 0.5 * test::pick(random, 0, 4));
  const auto instances = greedy_replicas(weights, std::int64_t{ranks} * slots, ranks);
  const Placement placement = pack_balanced(weights, instances, ranks, slots, true);
  ReplicaFlow flow(placement, experts);
  const std::int64_t mean = (sum(weights) + ranks - 1) / ranks;
  const auto largest = min_max_split(weights, instances_of(placement, experts), ranks).largest;
  RC_ASSERT(flow.excess(weights, mean) == largest - mean);
  // Again with other weights: nothing is left over from the first time.
  const Weights other = skewed(random, experts, 1.0);
  const std::int64_t other_mean = (sum(other) + ranks - 1) / ranks;
  RC_ASSERT(flow.excess(other, other_mean) ==
            min_max_split(other, instances_of(placement, experts), ranks).largest - other_mean);
}

// Where the search is cut short too, in all modes.
TEST(PlaceRobust, LargeClustersAreEven) {
  struct Case {
    int ranks, experts, slots;
  };
  for (const Case c : {Case{192, 256, 3}, Case{192, 256, 4}, Case{96, 256, 5}, Case{96, 128, 3},
                       Case{256, 256, 3}, Case{192, 128, 3}, Case{1024, 256, 2}}) {
    test::Random random(7);
    const Weights forward = skewed(random, c.experts, 0.8);
    Weights backward = skewed(random, c.experts, 0.15);
    for (std::size_t e = 0; e < backward.size(); ++e) {
      backward[e] = backward[e] * forward[e] / 400000;
    }
    for (const bool tied : {false, true}) {
      RobustSettings settings;
      settings.tied = tied;
      const Placement placement =
          place_robust({c.ranks, c.experts, c.slots, 8, 0}, forward, backward, settings);
      expect_sound(placement, c.experts);
      EXPECT_LE(unequal(forward, placement), 1.0026) << c.ranks << " ranks, tied " << tied;
      if (!tied) {  // else it follows from the forward split, and prices mend the rest
        EXPECT_LE(unequal(backward, placement), 1.0026) << c.ranks << " ranks";
      }
    }
  }
}

RC_GTEST_PROP(PlaceFill, AnyWeightsAreEvenInTheirPhase, (std::uint64_t seed)) {
  test::Random random(seed);
  const int ranks = test::pick(random, 1, 40);
  const int whole = test::pick(random, 1, 4);
  const int experts = ranks * whole;
  Weights weights = skewed(random, experts, 0.3 * test::pick(random, 0, 5));
  std::vector<PhaseLoad> loads;
  std::sort(weights.begin(), weights.end(), std::greater<>());
  for (const std::int64_t w : weights) {
    loads.push_back({w, w});
  }
  Placement placement = place_fill({ranks, experts, whole + 1, 1, 0}, loads, weights);
  for (int r = 0; r < ranks; ++r) {
    auto row = placement.row(r);
    std::sort(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
    });
  }
  expect_sound(placement, experts);
  RC_ASSERT(unequal(weights, placement) <= 1.0 + 1e-4 * ranks);
  RC_ASSERT(place_fill({ranks, experts, whole, 1, 0}, loads, weights).rows == 0);
}

TEST(PlaceRobust, BothPhasesAreEvenAndAnotherSlotDoesNotHarm) {
  test::Random random(33);
  double worst = 1.0;
  for (int round = 0; round < 60; ++round) {
    const int ranks = test::pick(random, 2, 24);
    const int per_rank = test::pick(random, 2, 8);
    const int experts = ranks * per_rank;
    const Weights forward = skewed(random, experts, 0.8);
    Weights backward = forward;
    for (auto& w : backward) {
      w = w * test::pick(random, 50, 150) / 100;
    }
    double before = 0.0;
    for (int extra = 1; extra <= 3; ++extra) {
      const Cluster cluster{ranks, experts, per_rank + extra, 1, 0};
      const Placement placement = place_robust(cluster, forward, backward);
      expect_sound(placement, experts);
      const double now = std::max(unequal(forward, placement), unequal(backward, placement));
      worst = std::max(worst, now);
      EXPECT_LE(now, extra == 1 ? 1.02 : 1.002) << ranks << " ranks, " << experts << " experts";
      if (extra > 1) {
        EXPECT_LE(now, before + 0.005);
      }
      before = now;
    }
  }
  std::cout << "the worst of 180 placements: largest over mean " << worst << "\n";
}

// One expert after another becomes popular within a step, as in early training:
// the placement is always a step old.
TEST(PlaceRobust, StaysEvenWhenRoutingCollapses) {
  test::Random random(7);
  std::normal_distribution<double> normal;
  const Cluster cluster{8, 32, 6, 4, 0};
  std::vector<double> logits(32, 0.0);
  double sums[2] = {0.0, 0.0};
  double worst[2] = {0.0, 0.0};
  Placement placements[2];
  constexpr int kSteps = 40;
  for (int step = 0; step <= kSteps; ++step) {
    double all = 0.0;
    for (double& logit : logits) {
      logit = 0.95 * logit + 0.5 * normal(random);  // a factor of 1.6 each step
      all += std::exp(logit);
    }
    Weights demand;
    for (const double logit : logits) {
      // No expert takes more than every token's one choice out of four.
      demand.push_back(static_cast<std::int64_t>(1e6 * std::min(std::exp(logit) / all, 0.25)));
    }
    for (int i = 0; i < 2 && step > 0; ++i) {
      const double now = unequal(demand, placements[i]);
      sums[i] += now / kSteps;
      worst[i] = std::max(worst[i], now);
    }
    const auto instances = greedy_replicas(demand, 48, 8);
    placements[0] = pack_balanced(demand, instances, 8, 6, true);
    placements[1] = place_robust(cluster, demand, demand);
  }
  std::cout << "collapsing demand, a step old: greedy " << sums[0] << " (worst " << worst[0]
            << "), robust " << sums[1] << " (worst " << worst[1] << ")\n";
  EXPECT_LT(sums[1], sums[0]);
  EXPECT_LT(sums[1], 1.1);
}

}  // namespace
}  // namespace lrmoe::plan
