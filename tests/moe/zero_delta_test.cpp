// Tokens whose delta is exactly zero: their pairs add nothing and cost no GEMM rows.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

using model::MoeConfig;
using model::RouterKind;
using plan::Activations;
using testing::lrmoe_strategy;
using testing::on_ranks;
using testing::sampled;

struct Case {
  MoeConfig config = testing::small_layer(RouterKind::softmax, true, 1.0);
  testing::LayerWeights weights = testing::random_weights(config, 31);
  at::Tensor x = testing::randn({48, config.hidden}, 32).requires_grad_();
  at::Tensor direction = testing::randn({48, config.hidden}, 33);
};

// Two thirds of the tokens have no target.
Case masked_case() {
  Case c;
  for (std::int64_t t = 0; t < 48; ++t) {
    if (t % 3 != 0) {
      c.direction[t].zero_();
    }
  }
  return c;
}

std::int64_t gemm_rows(const testing::RankedResult& result) {
  std::int64_t rows = 0;
  for (const auto& work : result.work) {
    rows = std::accumulate(work->backward_gemm_rows.begin(), work->backward_gemm_rows.end(), rows);
  }
  return rows;
}

std::int64_t zero_pairs(const testing::RankedResult& result) {
  std::int64_t pairs = 0;
  for (const auto& work : result.work) {
    pairs += work->zero_pairs;
  }
  return pairs;
}

TEST(ZeroDelta, KeepAllSkipsTheirPairsAndChangesNoGradient) {
  const Case c = masked_case();
  const auto want = testing::reference_layer(c.x, c.weights, c.config);
  torch::autograd::backward({(want.out * c.direction).sum()}, {});
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    for (const int ranks : {1, 2, 4}) {
      const auto strategy = lrmoe_strategy(sampled(1.0, activations));
      testing::RankedOptions options = on_ranks(ranks);
      options.step.zero_deltas = true;
      const auto got =
          testing::ranked_layer(c.x, c.direction, c.weights, c.config, *strategy, options);
      EXPECT_LT(testing::relative_error(got.dx, c.x.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.router_grad, c.weights.router.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.gate_up_grad, c.weights.gate_up.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.down_grad, c.weights.down.grad()), 1e-10);
      EXPECT_EQ(zero_pairs(got), 32 * c.config.top_k);
      EXPECT_EQ(gemm_rows(got), 16 * c.config.top_k);
    }
  }
}

TEST(ZeroDelta, AreTheLastToBeKeptWherePairsAreSampled) {
  const Case c = masked_case();
  const std::int64_t live = std::int64_t{16} * c.config.top_k;
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    // A quota of half of the pairs is more than the third that has a delta; a tenth is less.
    for (const double ratio : {0.5, 0.1}) {
      const auto strategy = lrmoe_strategy(sampled(ratio, activations));
      testing::RankedOptions options = on_ranks(2);
      options.step.zero_deltas = true;
      const auto got =
          testing::ranked_layer(c.x, c.direction, c.weights, c.config, *strategy, options);
      EXPECT_LE(gemm_rows(got), live);
      EXPECT_GT(gemm_rows(got), 0);
      std::int64_t kept = 0;
      for (const auto& work : got.work) {
        kept = std::accumulate(work->backward_pairs.begin(), work->backward_pairs.end(), kept);
      }
      EXPECT_EQ(gemm_rows(got) + zero_pairs(got), kept);
      for (std::int64_t t = 0; t < 48; ++t) {
        if (t % 3 != 0) {
          EXPECT_EQ(got.dx[t].abs().max().item<double>(), 0.0);
        }
      }
    }
  }
}

TEST(ZeroDelta, ARankWithNoneLeftStillTakesPart) {
  Case c = masked_case();
  c.direction.slice(0, 0, 24).zero_();  // of two ranks, all of the first one's tokens
  const auto strategy = lrmoe_strategy(sampled(1.0));
  testing::RankedOptions options = on_ranks(2);
  options.step.zero_deltas = true;
  const auto got = testing::ranked_layer(c.x, c.direction, c.weights, c.config, *strategy, options);
  EXPECT_EQ(gemm_rows(got), 8 * c.config.top_k);
  c.direction.zero_();
  const auto none =
      testing::ranked_layer(c.x, c.direction, c.weights, c.config, *strategy, options);
  EXPECT_EQ(gemm_rows(none), 0);
  EXPECT_EQ(none.gate_up_grad.abs().max().item<double>(), 0.0);
}

}  // namespace
}  // namespace lrmoe
