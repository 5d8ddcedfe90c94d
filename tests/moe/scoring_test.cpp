#include "lrmoe/moe/scoring.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

constexpr std::int64_t kD = 12, kN = 9;

struct Pair {
  at::Tensor x, gate_up, down, delta;
};

Pair random_pair(std::uint64_t seed) {
  return {testing::randn({kD}, seed + 1),
          testing::randn({2 * kN, kD}, seed + 2, 0.4).requires_grad_(),
          testing::randn({kD, kN}, seed + 3, 0.4).requires_grad_(), testing::randn({kD}, seed + 4)};
}

// |dW|^2 over the pair's three matrices, from plain autograd.
double update_square(const Pair& pair, double p) {
  const at::Tensor g = at::mv(pair.gate_up.slice(0, 0, kN), pair.x);
  const at::Tensor u = at::mv(pair.gate_up.slice(0, kN), pair.x);
  const at::Tensor y = at::mv(pair.down, g / (1.0 + at::exp(-g)) * u);
  const auto grads = torch::autograd::grad({p * at::dot(y, pair.delta)}, {pair.gate_up, pair.down});
  return (grads[0].square().sum() + grads[1].square().sum()).item<double>();
}

TEST(Scoring, ExactIsTheNormOfThePairsUpdate) {
  for (std::uint64_t seed = 0; seed < 50; seed += 10) {
    const Pair pair = random_pair(seed);
    const at::Tensor gate_up = at::mv(pair.gate_up.detach(), pair.x).unsqueeze(0);
    const at::Tensor a = moe::gated(gate_up);
    const at::Tensor r = at::mv(pair.down.detach().t(), pair.delta).unsqueeze(0);
    const double square =
        moe::exact_square(pair.delta.unsqueeze(0), moe::squares(pair.x.unsqueeze(0)), a, r, gate_up)
            .item<double>();
    const double want = update_square(pair, 0.3);
    EXPECT_NEAR(square * 0.3 * 0.3, want, 1e-5 * want);
  }
}

TEST(Scoring, UpdateNormIsTheRootMeanSquareOverIsotropicDelta) {
  const Pair pair = random_pair(100);
  const std::vector<moe::Group> groups = {{0, 0, 1}};
  const at::Tensor gate_up = at::mv(pair.gate_up.detach(), pair.x).unsqueeze(0);
  const at::Tensor a = moe::gated(gate_up);
  plan::LrmoeOptions options;
  options.metric = plan::Metric::update_norm;
  const at::Tensor statistics =
      moe::pair_statistics(options, a, gate_up, pair.down.detach().unsqueeze(0), groups);
  double mean = 0.0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    at::Tensor delta = testing::randn({kD}, 1000 + static_cast<std::uint64_t>(i));
    delta = delta / delta.norm();
    const at::Tensor r = at::mv(pair.down.detach().t(), delta).unsqueeze(0);
    mean += moe::exact_square(delta.unsqueeze(0), moe::squares(pair.x.unsqueeze(0)), a, r, gate_up)
                .item<double>();
  }
  mean *= 0.3 * 0.3 / kDraws;
  const at::Tensor unit = pair.delta / pair.delta.norm();
  const double score = moe::score_pairs(options.metric, at::full({1, 1}, 0.3, at::kDouble),
                                        unit.unsqueeze(0), pair.x.unsqueeze(0), statistics, {})
                           .item<double>();
  EXPECT_NEAR(score * score, mean, 0.05 * mean);
}

TEST(Scoring, UpdateRouterAddsWhatCentringPutsIntoTheRoutersRow) {
  // One token, two pairs: by hand, |delta| = 5, |x|^2 / d = 2, |o|^2 / (0.75)^2 = 32.
  const at::Tensor gates = at::tensor({0.5, 0.25}, at::kDouble).view({1, 2});
  const at::Tensor delta = at::tensor({3.0, 4.0}, at::kDouble).view({1, 2});
  const at::Tensor x = at::tensor({0.0, 2.0}, at::kDouble).view({1, 2});
  const at::Tensor o = at::tensor({3.0, 3.0}, at::kDouble).view({1, 2});
  const at::Tensor statistics = at::tensor({4.0, 1.0, 9.0, 3.0}, at::kFloat).view({2, 2});
  const at::Tensor got =
      moe::score_pairs(plan::Metric::update_router, gates, delta, x, statistics, o);
  const at::Tensor want = at::tensor(
      {0.5 * 5 * std::sqrt(4.0 + 2 * (1.0 + 32.0)), 0.25 * 5 * std::sqrt(9.0 + 2 * (3.0 + 32.0))},
      at::kFloat);
  EXPECT_TRUE(at::allclose(got, want)) << got;
}

TEST(Scoring, CheaperMetricsAreWhatTheirNamesSay) {
  const at::Tensor gates = at::tensor({0.5, 0.25}, at::kDouble).view({1, 2});
  const at::Tensor delta = at::tensor({3.0, 4.0}, at::kDouble).view({1, 2});
  const at::Tensor x = at::ones({1, 2}, at::kDouble);
  const at::Tensor statistics = at::tensor({4.0, 9.0}, at::kFloat).view({2, 1});
  const auto scores = [&](plan::Metric metric) {
    return moe::score_pairs(metric, gates, delta, x, statistics, {});
  };
  EXPECT_TRUE(at::allclose(scores(plan::Metric::gate), at::tensor({0.5, 0.25}, at::kFloat)));
  EXPECT_TRUE(at::allclose(scores(plan::Metric::gate_grad), at::tensor({2.5, 1.25}, at::kFloat)));
  EXPECT_TRUE(at::allclose(scores(plan::Metric::down_norm), at::tensor({5.0, 3.75}, at::kFloat)));
}

}  // namespace
}  // namespace lrmoe
