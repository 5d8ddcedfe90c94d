#include "lrmoe/plan/selection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

std::int64_t units(double pairs) {
  return std::llround(pairs * static_cast<double>(kOne));
}

Cell cell(std::int32_t demand, double quota, double begin, std::int64_t draw) {
  Cell c{0, 0, -1, demand, units(quota), units(begin), 0};
  c.keep = static_cast<std::int32_t>(((c.begin + c.quota + draw) >> kQuotaBits) -
                                     ((c.begin + draw) >> kQuotaBits));
  return c;
}

std::vector<float> random_scores(int count, std::uint64_t seed) {
  std::vector<float> scores;
  for (int i = 0; i < count; ++i) {
    const double uniform =
        static_cast<double>(hash({seed, static_cast<std::uint64_t>(i)}) >> 11) * 0x1p-53;
    scores.push_back(static_cast<float>(std::exp(4.0 * uniform) - 1.0));
  }
  return scores;
}

// pi by bisection, independent of the code under test.
std::vector<double> expected_pi(const std::vector<float>& scores, double quota) {
  double low = 0.0, high = 1e12;
  for (int i = 0; i < 400; ++i) {
    const double tau = low == 0.0 ? high * 1e-24 + (high - low) / 2 : (low + high) / 2;
    double sum = 0.0;
    for (const float s : scores) {
      sum += std::min(1.0, tau * static_cast<double>(s));
    }
    (sum < quota ? low : high) = tau;
  }
  std::vector<double> pi;
  for (const float s : scores) {
    pi.push_back(std::min(1.0, high * static_cast<double>(s)));
  }
  return pi;
}

TEST(Selection, FrequenciesEqualPiAndCountsTheQuota) {
  for (const double quota : {0.3, 4.0, 11.7, 29.5}) {
    for (const double begin : {0.0, 7.31}) {
      const auto scores = random_scores(30, 5);
      const auto pi = expected_pi(scores, quota);
      constexpr int kDraws = 4096;
      std::vector<int> kept(scores.size(), 0);
      for (int i = 0; i < kDraws; ++i) {
        const std::int64_t u = kOne / kDraws * i;
        const auto c = cell(30, quota, begin, u);
        const auto chosen = select_in_cell(c, u, scores, SelectMode::sampled);
        ASSERT_EQ(static_cast<std::int32_t>(chosen.position.size()), c.keep);
        for (std::size_t j = 0; j < chosen.position.size(); ++j) {
          const auto p = static_cast<std::size_t>(chosen.position[j]);
          ++kept[p];
          const double step = 0x1p-23 / pi[p];  // pi is a multiple of 2^-24
          EXPECT_NEAR(chosen.weight[j], 1.0 / pi[p], (1e-3 + step) / pi[p]);
        }
      }
      // A stretch of length pi covers pi * kDraws of an even grid, give or take one.
      for (std::size_t p = 0; p < scores.size(); ++p) {
        EXPECT_NEAR(kept[p], pi[p] * kDraws, 1.01) << "quota " << quota << " pair " << p;
      }
    }
  }
}

TEST(Selection, OneScoreThatSaturatesIsAlwaysKeptAtWeightOne) {
  const std::vector<float> scores = {1.0F, 1000.0F, 1.0F, 2.0F};
  for (int i = 0; i < 64; ++i) {
    const std::int64_t u = kOne / 64 * i;
    const auto chosen = select_in_cell(cell(4, 2.0, 0.4, u), u, scores, SelectMode::sampled);
    ASSERT_EQ(chosen.position.size(), 2U);
    const bool second_is_first = chosen.position[0] == 1;
    EXPECT_TRUE(second_is_first || chosen.position[1] == 1);
    EXPECT_EQ(chosen.weight[second_is_first ? 0 : 1], 1.0F);
  }
}

TEST(Selection, ZeroScoresEverywhereFillInOrder) {
  const std::vector<float> scores(6, 0.0F);
  const auto chosen = select_in_cell(cell(6, 3.0, 0.0, 0), 0, scores, SelectMode::sampled);
  EXPECT_EQ(chosen.position, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(chosen.weight, (std::vector<float>{1.0F, 1.0F, 1.0F}));
}

TEST(Selection, QuotaAboveTheScoresAboveZeroKeepsThemAtWeightOneAndFills) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = {0.0F, nan, 5.0F, 0.0F, 1e-30F, 0.0F};
  const auto chosen = select_in_cell(cell(6, 3.0, 0.0, 0), 0, scores, SelectMode::sampled);
  EXPECT_EQ(chosen.position, (std::vector<std::int32_t>{0, 2, 4}));
  EXPECT_EQ(chosen.weight, (std::vector<float>{1.0F, 1.0F, 1.0F}));
}

TEST(Selection, ZeroScoresAreNeverDrawnWhileOthersRemain) {
  const std::vector<float> scores = {0.0F, 3.0F, 0.0F, 2.0F, 1.0F};
  for (int i = 0; i < 256; ++i) {
    const std::int64_t u = kOne / 256 * i;
    for (const auto p :
         select_in_cell(cell(5, 2.5, 0.9, u), u, scores, SelectMode::sampled).position) {
      EXPECT_TRUE(p == 1 || p == 3 || p == 4);
    }
  }
}

TEST(Selection, ScoresOfAnyMagnitudeSumToTheQuota) {
  for (const auto& scores :
       {std::vector<float>{1e-38F, 1e38F, 1.0F, 1e-20F}, std::vector<float>(50, 1e-44F),
        std::vector<float>{std::numeric_limits<float>::infinity(), 1.0F, 2.0F, 3.0F}}) {
    const auto n = static_cast<std::int32_t>(scores.size());
    for (int i = 0; i < 128; ++i) {
      const std::int64_t u = kOne / 128 * i;
      const auto c = cell(n, 0.37 * n, 3.3, u);
      EXPECT_EQ(static_cast<std::int32_t>(
                    select_in_cell(c, u, scores, SelectMode::sampled).position.size()),
                c.keep);
    }
  }
}

TEST(Selection, TopTakesTheLargestAndBreaksTiesByOrder) {
  const std::vector<float> scores = {1.0F, 4.0F, 2.0F, 4.0F, 2.0F};
  const auto chosen = select_in_cell(cell(5, 3.0, 0.0, 0), 0, scores, SelectMode::top);
  EXPECT_EQ(chosen.position, (std::vector<std::int32_t>{1, 2, 3}));
}

TEST(Selection, AnotherNumberOfPairsThanPlannedIsRefused) {
  const std::vector<float> scores = {1.0F, 4.0F};
  EXPECT_THROW(select_in_cell(cell(5, 3.0, 0.0, 0), 0, scores, SelectMode::top), InternalError);
}

}  // namespace
}  // namespace lrmoe::plan
