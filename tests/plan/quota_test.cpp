#include "lrmoe/plan/quota.h"

#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

/// Lognormal scores, an expert's scale differing from the others'.
ScoreCurves random_curves(test::Random& random, int experts, double spread) {
  ScoreCurves curves(experts);
  ScoreHistogram step(experts);
  std::normal_distribution<double> normal;
  for (int e = 0; e < experts; ++e) {
    const double scale = std::exp(spread * normal(random));
    for (int i = 0; i < 300; ++i) {
      step.add(e, static_cast<float>(scale * std::exp(normal(random))));
    }
  }
  curves.update(step);
  return curves;
}

std::vector<std::int64_t> random_pairs(test::Random& random, int experts) {
  std::vector<std::int64_t> pairs;
  for (int e = 0; e < experts; ++e) {
    pairs.push_back(test::pick(random, 0, 5) == 0 ? 0 : test::pick(random, 1, 2000));
  }
  pairs[0] += 1;
  return pairs;
}

TEST(Quota, OnePriceIsTheLeastVariance) {
  test::Random random(41);
  const ScoreCurves curves = random_curves(random, 12, 1.0);
  const std::vector<std::int64_t> pairs(12, 1000);
  const QuotaSettings settings{to_fixed(0.3), 0, 0};
  const auto quota = quota_without_ranks(&curves, pairs, settings);
  EXPECT_EQ(sum(quota), 12'000 * to_fixed(0.3));
  const double least = predicted_variance(&curves, pairs, quota, 1);
  // Any shift of 5 pairs from one expert to another costs variance.
  for (int round = 0; round < 100; ++round) {
    auto other = quota;
    const auto from = static_cast<std::size_t>(test::pick(random, 0, 11));
    const auto to = static_cast<std::size_t>(test::pick(random, 0, 11));
    if (from != to && other[from] > 5 * kOne && other[to] + 5 * kOne <= 1000 * kOne) {
      other[from] -= 5 * kOne;
      other[to] += 5 * kOne;
      EXPECT_GT(predicted_variance(&curves, pairs, other, 1), least);
    }
  }
  const std::vector<std::int64_t> alike(12, sum(quota) / 12);
  std::cout << "added variance: one price " << least << ", the same share for all "
            << predicted_variance(&curves, pairs, alike, 1) << "\n";
}

TEST(Quota, FlatCurvesGiveEveryExpertTheRatio) {
  const std::vector<std::int64_t> pairs = {100, 7, 0, 1000};
  const auto quota = quota_without_ranks(nullptr, pairs, {to_fixed(0.25), 0, 0});
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    EXPECT_NEAR(from_fixed(quota[e]), 0.25 * static_cast<double>(pairs[e]), 1e-6);
  }
  EXPECT_NEAR(predicted_variance(nullptr, pairs, quota, 1), 3.0, 1e-6);  // 1/rho - 1
}

TEST(Quota, ZeroScoresEverywhereStillFillTheTarget) {
  ScoreCurves curves(3);
  ScoreHistogram step(3);
  for (int e = 0; e < 3; ++e) {
    step.add(e, 0.0F, 50);
  }
  curves.update(step);
  const std::vector<std::int64_t> pairs = {40, 0, 360};
  const auto quota = quota_without_ranks(&curves, pairs, {to_fixed(0.5), 0, 0});
  EXPECT_EQ(sum(quota), 400 * to_fixed(0.5));
  EXPECT_NEAR(from_fixed(quota[2]), 180.0, 1e-6);
  EXPECT_EQ(predicted_variance(&curves, pairs, quota, 1), 0.0);
}

TEST(Quota, FloorsBindAndNeverPassTheRatio) {
  ScoreCurves curves(2);
  ScoreHistogram step(2);
  step.add(0, 1000.0F, 100);
  step.add(1, 1e-6F, 100);
  curves.update(step);
  const std::vector<std::int64_t> pairs = {1000, 1000};
  auto quota = quota_without_ranks(&curves, pairs, {to_fixed(0.25), to_fixed(0.1), 0});
  EXPECT_EQ(quota[1], 1000 * to_fixed(0.1));
  EXPECT_EQ(sum(quota), 2000 * to_fixed(0.25));
  // A ratio under the floor: everybody gets the ratio.
  quota = quota_without_ranks(&curves, pairs, {to_fixed(0.01), to_fixed(0.1), 0});
  EXPECT_EQ(quota[0], 1000 * to_fixed(0.01));
  EXPECT_EQ(quota[1], 1000 * to_fixed(0.01));
}

TEST(QuotaAtRanks, SumsFloorsDemandsAndCapacityHold) {
  test::Random random(42);
  int raised = 0;
  for (int round = 0; round < 300; ++round) {
    const int ranks = test::pick(random, 1, 8);
    const int experts = test::pick(random, 1, 20);
    const ScoreCurves curves = random_curves(random, experts, 1.0);
    Loads loads(experts, ranks);
    for (auto& load : loads.values) {
      load = test::pick(random, 0, 2) == 0 ? test::pick(random, 1, 500) : 0;
    }
    const QuotaSettings settings{to_fixed(0.01 * test::pick(random, 1, 99)),
                                 to_fixed(0.02 * test::pick(random, 0, 4)), to_fixed(0.01)};
    const RankQuotas quotas = quota_at_ranks(&curves, loads, settings);
    const std::int64_t target = sum(loads.values) * settings.ratio;
    EXPECT_EQ(sum(quotas.quota.values), target);
    for (int r = 0; r < ranks; ++r) {
      std::int64_t retained = 0;
      for (int e = 0; e < experts; ++e) {
        const std::int64_t q = quotas.quota.at(e, r);
        EXPECT_LE(q, loads.at(e, r) * kOne);
        EXPECT_GE(q, loads.at(e, r) * std::min(settings.floor, settings.ratio));
        retained += q;
      }
      EXPECT_LE(retained, quotas.capacity);
    }
    raised += quotas.raised ? 1 : 0;
    if (!quotas.raised) {
      EXPECT_LE(static_cast<double>(quotas.capacity),
                1.01 * static_cast<double>(target) / ranks + 2.0);
    }
  }
  EXPECT_GT(raised, 0);  // sparse tables: some ranks have too little to retain
  EXPECT_LT(raised, 300);
}

TEST(QuotaOfExperts, FlowsWithinTheCapacityAndIsTheLeastVariance) {
  test::Random random(43);
  int capped = 0;
  for (int round = 0; round < 300; ++round) {
    const int ranks = test::pick(random, 2, 6);
    const int experts = test::pick(random, 2, 14);
    const ScoreCurves curves = random_curves(random, experts, 1.5);
    const auto pairs = random_pairs(random, experts);
    Instances instances(pairs.size());
    for (auto& there : instances) {
      const int first = test::pick(random, 0, ranks - 1);
      for (int r = 0; r < ranks; ++r) {
        if (r == first || test::pick(random, 0, 4) == 0) {
          there.push_back(r);
        }
      }
    }
    const QuotaSettings settings{to_fixed(0.01 * test::pick(random, 5, 60)), to_fixed(0.02),
                                 to_fixed(0.01)};
    const auto flows = [&](const std::vector<std::int64_t>& quota, std::int64_t capacity) {
      return min_max_split(quota, instances, ranks).largest <= capacity;
    };
    const Quotas result = quota_of_experts(&curves, pairs, instances, ranks, settings);
    EXPECT_EQ(sum(result.quota), sum(pairs) * settings.ratio);
    EXPECT_TRUE(flows(result.quota, result.capacity));
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      EXPECT_LE(result.quota[e], pairs[e] * kOne);
      EXPECT_GE(result.quota[e], pairs[e] * std::min(settings.floor, settings.ratio));
    }
    const double least = predicted_variance(&curves, pairs, result.quota, 1);
    EXPECT_NEAR(result.added_variance, least, 1e-4 * least + 1e-9);
    const auto free = quota_without_ranks(&curves, pairs, settings);
    EXPECT_LE(predicted_variance(&curves, pairs, free, 1), least * (1 + 1e-9));
    capped += flows(free, result.capacity) ? 0 : 1;
    // No shift between two experts that still flows is cheaper.
    for (std::size_t from = 0; from < pairs.size(); ++from) {
      for (std::size_t to = 0; to < pairs.size(); ++to) {
        auto other = result.quota;
        const std::int64_t shift = pairs[from] * kOne / 64;
        other[from] -= shift;
        other[to] += shift;
        if (from != to && shift > 0 && other[to] <= pairs[to] * kOne &&
            other[from] >= pairs[from] * std::min(settings.floor, settings.ratio) &&
            flows(other, result.capacity)) {
          EXPECT_GE(predicted_variance(&curves, pairs, other, 1), least * (1 - 1e-9));
        }
      }
    }
  }
  EXPECT_GT(capped, 50);  // the ranks' prices were really needed
}

TEST(RatioForVariance, IsTheSmallestThatKeepsUnderTheCeiling) {
  test::Random random(44);
  const ScoreCurves curves = random_curves(random, 8, 1.0);
  const auto pairs = random_pairs(random, 8);
  std::int64_t before = kOne + 1;
  for (const double ceiling : {0.01, 0.1, 0.5, 2.0, 10.0}) {
    const std::int64_t ratio = ratio_for_variance(curves.prices(), pairs, ceiling);
    EXPECT_LT(ratio, before);
    before = ratio;
    const auto variance = [&](std::int64_t r) {
      return predicted_variance(&curves, pairs, quota_without_ranks(&curves, pairs, {r, 0, 0}), 1);
    };
    EXPECT_LE(variance(ratio), ceiling * 1.001);
    EXPECT_GT(variance(ratio - ratio / 100), ceiling);
  }
}

TEST(Cells, SmallOnesAreNotStarved) {
  // 256 ranks, 64 experts, a few pairs a cell, a quarter kept: rounding each cell
  // by itself would lose most of them.
  test::Random random(45);
  Counts pairs(256, 64);
  for (auto& value : pairs.values) {
    value = test::pick(random, 0, 3);
  }
  const auto all = pairs_per_expert(pairs);
  const ScoreCurves curves = random_curves(random, 64, 0.5);
  const auto quota = quota_without_ranks(&curves, all, {to_fixed(0.25), to_fixed(0.02), 0});
  auto cells = cells_of_sources(pairs, quota);
  const std::int64_t target = total_pairs(pairs) * to_fixed(0.25);
  constexpr int kDraws = 1024;
  std::vector<std::int64_t> kept(cells.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    const std::int64_t draw = i * (kOne / kDraws) + test::pick(random, 0, kOne / kDraws - 1);
    draw_counts(cells, draw);
    std::int64_t total = 0;
    for (std::size_t j = 0; j < cells.size(); ++j) {
      const std::int64_t low = cells[j].quota >> kQuotaBits;
      EXPECT_TRUE(cells[j].keep == low || cells[j].keep == low + 1);
      EXPECT_LE(cells[j].keep, cells[j].demand);
      total += cells[j].keep;
      kept[j] += cells[j].keep;
    }
    EXPECT_EQ(total, (target + draw) >> kQuotaBits);  // exact, within 1 of the target
  }
  // Stratified draws: a cell's mean is its real quota within two strata.
  for (std::size_t j = 0; j < cells.size(); ++j) {
    EXPECT_NEAR(static_cast<double>(kept[j]) / kDraws, from_fixed(cells[j].quota), 2.0 / kDraws);
  }
}

TEST(Cells, SharesOfAnInstanceAddUpToItsQuota) {
  test::Random random(46);
  const Cluster cluster{5, 9, 9, 3, 0};
  const Counts demand = test::random_demand(random, cluster, 40, 1.0);
  Split forward;
  Loads quota(9, 5);
  for (int s = 0; s < 5; ++s) {
    for (int e = 0; e < 9; ++e) {
      if (demand.at(s, e) > 1) {
        forward.push_back({s, e, 1, 1});
        forward.push_back({s, e, 3, demand.at(s, e) - 1});
      }
    }
  }
  const Loads loads = expert_loads(forward, 9, 5);
  for (std::size_t i = 0; i < quota.values.size(); ++i) {
    quota.values[i] = loads.values[i] * kOne / 3;
  }
  Loads given(9, 5);
  for (const Cell& cell : cells_of_routes(forward, quota)) {
    EXPECT_LE(cell.quota, cell.demand * kOne);
    EXPECT_NEAR(from_fixed(cell.quota), cell.demand / 3.0, 1e-6);
    given.at(cell.expert, cell.rank) += cell.quota;
  }
  EXPECT_EQ(given, quota);
}

}  // namespace
}  // namespace lrmoe::plan
