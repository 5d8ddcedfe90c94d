#include "lrmoe/plan/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

TEST(ScoreBin, QuarterOctavesInOrder) {
  EXPECT_EQ(score_bin(0.0F), 0);
  EXPECT_EQ(score_bin(-1.0F), 0);
  EXPECT_EQ(score_bin(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(score_bin(std::ldexp(1.0F, -60)), 1);
  EXPECT_EQ(score_bin(std::ldexp(1.0F, -100)), 1);
  EXPECT_EQ(score_bin(std::numeric_limits<float>::infinity()), kScoreBins - 1);
  EXPECT_EQ(score_bin(1.0F), 1 + 4 * 60);
  EXPECT_EQ(score_bin(1.25F), 2 + 4 * 60);
  EXPECT_EQ(score_bin(1.999F), 4 + 4 * 60);
  EXPECT_EQ(score_bin(2.0F), 5 + 4 * 60);
  for (int bin = 1; bin < kScoreBins; ++bin) {
    EXPECT_GT(score_of_bin(bin), score_of_bin(bin - 1));
    EXPECT_EQ(score_bin(static_cast<float>(score_of_bin(bin))), bin);
  }
}

/// A curve of the scores, and the binned scores themselves.
struct Sample {
  std::vector<double> scores;
  std::vector<std::int64_t> bins = std::vector<std::int64_t>(kScoreBins, 0);
  void add(float score) {
    const int bin = score_bin(score);
    ++bins[static_cast<std::size_t>(bin)];
    scores.push_back(score_of_bin(bin));
  }
};

TEST(Curve, EqualsTheSumsItStandsFor) {
  test::Random random(3);
  std::lognormal_distribution<float> draw(0.0F, 1.5F);
  Sample sample;
  for (int i = 0; i < 500; ++i) {
    sample.add(i % 10 == 0 ? 0.0F : draw(random));
  }
  const Curve curve(sample.bins);
  for (const double tau : {1e-3, 0.1, 0.7, 1.0, 3.0, 50.0, 1e6, 1e12}) {
    double share = 0.0;
    double added = 0.0;
    double square = 0.0;
    for (const double s : sample.scores) {
      const double pi = std::min(1.0, tau * s);
      share += pi / 500;
      if (s > score_of_bin(0)) {
        added += s * s * (1.0 / pi - 1.0) / 500;
        square += s * s / 500;
      }
    }
    EXPECT_NEAR(curve.share(tau), share, 1e-12);
    EXPECT_NEAR(curve.added_variance(tau), added, 1e-9 * (1.0 + added));
    EXPECT_NEAR(curve.square(), square, 1e-9 * square);
    if (share < 0.9) {  // not on the plateau before the zero scores
      EXPECT_NEAR(curve.tau(share), tau, 1e-9 * tau);
    }
  }
  for (double share = 0.01; share < 1.0; share += 0.01) {
    EXPECT_NEAR(curve.share(curve.tau(share)), share, 1e-12);
  }
  EXPECT_EQ(curve.share(Curve::kAllPairs), 1.0);
  EXPECT_EQ(curve.share(0.0), 0.0);
}

TEST(ScoreCurves, FlatThenPooledThenTheExpertsOwn) {
  ScoreCurves curves(3);
  EXPECT_EQ(curves.expert(0).share(0.25), curve_of(nullptr, 0).share(0.25));
  ScoreHistogram step(3);
  step.add(0, 4.0F, 30);
  step.add(1, 1.0F, 10);
  curves.update(step);
  EXPECT_GT(curves.expert(0).square(), curves.expert(2).square());
  EXPECT_GT(curves.expert(2).square(), curves.expert(1).square());
  const double four = score_of_bin(score_bin(4.0F));
  const double one = score_of_bin(score_bin(1.0F));
  EXPECT_DOUBLE_EQ(curves.expert(2).square(), (30 * four * four + 10 * one * one) / 40);
}

TEST(ScoreCurves, AverageIsIntegerAndForgets) {
  ScoreCurves curves(1);
  ScoreHistogram step(1);
  step.add(0, 1.0F, 100);
  curves.update(step);
  const auto one = static_cast<std::size_t>(score_bin(1.0F));
  const auto two = static_cast<std::size_t>(score_bin(2.0F));
  EXPECT_EQ(curves.state()[one], 100 << 8);
  step.clear();
  step.add(0, 2.0F, 40);
  curves.update(step);
  EXPECT_EQ(curves.state()[one], 75 << 8);  // 100 + (0 - 100) / 4
  EXPECT_EQ(curves.state()[two], 10 << 8);
  ScoreCurves copy(1);
  copy.restore(curves.state());
  EXPECT_EQ(copy.expert(0).square(), curves.expert(0).square());
  for (int i = 0; i < 100; ++i) {
    curves.update(step);
  }
  EXPECT_EQ(curves.state()[one], 0);
}

// A share that is just the pairs above a threshold: those below are not wanted, and the
// price is still one at which they are not.
TEST(Curve, ShareOfWholeBinsHasAPrice) {
  std::vector<std::int64_t> bins(kScoreBins, 0);
  bins[0] = 10;
  bins[static_cast<std::size_t>(score_bin(1.0F))] = 14;
  bins[static_cast<std::size_t>(score_bin(4.0F))] = 8;
  const Curve curve(bins);
  const double tau = curve.tau(22.0 / 32.0);
  EXPECT_NEAR(curve.share(tau), 22.0 / 32.0, 1e-12);
  EXPECT_NEAR(curve.added_variance(tau), 0.0, 1e-12);
}

}  // namespace
}  // namespace lrmoe::plan
