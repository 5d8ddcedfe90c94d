// Passes in chunks of tokens: the same outputs and gradients as in one go.
#include <gtest/gtest.h>

#include "lrmoe/moe/chunks.h"
#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

using model::MoeConfig;
using model::RouterKind;
using plan::Activations;
using testing::chunked;
using testing::lrmoe_strategy;
using testing::on_ranks;
using testing::sampled;

TEST(Chunks, TokensArePartedEvenlyAndEveryPairIsInItsTokensChunk) {
  const moe::RoutedPairs pairs{{0, 3, 8, 9, 1, 2, 10, 11, 19}, {4, 5}};
  const auto chunks = moe::chunk_pairs(pairs, 10, 2, 3);  // tokens [0, 3), [3, 6), [6, 10)
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].pair, (std::vector<std::int64_t>{0, 3, 1, 2}));
  EXPECT_EQ(chunks[0].per_rank, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(chunks[1].pair, (std::vector<std::int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(chunks[1].per_rank, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(chunks[2].pair, (std::vector<std::int64_t>{7}));
  EXPECT_EQ(chunks[2].per_rank, (std::vector<std::int64_t>{0, 1}));
}

TEST(Chunks, KeepAllEqualsPlainAutograd) {
  const MoeConfig c = testing::small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 11);
  at::Tensor x = testing::randn({41, c.hidden}, 12).requires_grad_();
  const at::Tensor direction = testing::randn({41, c.hidden}, 13);
  const auto want = testing::reference_layer(x, w, c);
  torch::autograd::backward({(want.out * direction).sum()}, {});
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    for (const int ranks : {1, 2, 4}) {
      for (const int chunks : {1, 2, 4, 12}) {  // 12: chunks of some ranks have no token
        const auto strategy = chunked(lrmoe_strategy(sampled(1.0, activations)), chunks);
        const auto got = testing::ranked_layer(x, direction, w, c, *strategy, on_ranks(ranks));
        EXPECT_LT(testing::relative_error(got.out, want.out), 1e-10);
        EXPECT_LT(testing::relative_error(got.dx, x.grad()), 1e-10);
        EXPECT_LT(testing::relative_error(got.router_grad, w.router.grad()), 1e-10);
        EXPECT_LT(testing::relative_error(got.gate_up_grad, w.gate_up.grad()), 1e-10);
        EXPECT_LT(testing::relative_error(got.down_grad, w.down.grad()), 1e-10);
      }
    }
  }
}

// The same pairs are selected, whatever the chunks: scores are made of all of them.
// Scores and the weights 1/pi are fp32, so they agree to its rounding.
TEST(Chunks, SampledGradientsAreThoseOfOneGo) {
  const MoeConfig c = testing::small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 21);
  const at::Tensor x = testing::randn({90, c.hidden}, 22);
  const at::Tensor direction = testing::randn({90, c.hidden}, 23);
  std::vector<plan::LrmoeOptions> all;
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    all.push_back(sampled(0.3, activations));
    all.push_back(sampled(0.3, activations));
    all.back().shortlist = 0.5;
    all.push_back(sampled(0.3, activations));
    all.back().metric = plan::Metric::exact;
    all.push_back(sampled(0.3, activations));
    all.back().router_gradient = plan::RouterGradient::exact;
    all.back().shortlist = 0.5;
    all.back().shortlist_by = plan::ShortlistBy::output;
  }
  for (const auto& options : all) {
    const auto whole =
        testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(options), on_ranks(3));
    for (const int chunks : {2, 5}) {
      const auto strategy = chunked(lrmoe_strategy(options), chunks);
      const auto got = testing::ranked_layer(x, direction, w, c, *strategy, on_ranks(3));
      EXPECT_LT(testing::relative_error(got.out, whole.out), 1e-12);
      EXPECT_LT(testing::relative_error(got.dx, whole.dx), 1e-6);
      EXPECT_LT(testing::relative_error(got.router_grad, whole.router_grad), 1e-6);
      EXPECT_LT(testing::relative_error(got.gate_up_grad, whole.gate_up_grad), 1e-6);
      EXPECT_LT(testing::relative_error(got.down_grad, whole.down_grad), 1e-6);
      for (std::size_t r = 0; r < got.work.size(); ++r) {
        EXPECT_EQ(got.work[r]->forward_rows, whole.work[r]->forward_rows);
        EXPECT_EQ(got.work[r]->forward_gemm_rows, whole.work[r]->forward_gemm_rows);
        EXPECT_EQ(got.work[r]->backward_rows, whole.work[r]->backward_rows);
        EXPECT_EQ(got.work[r]->backward_gemm_rows, whole.work[r]->backward_gemm_rows);
        EXPECT_NEAR(got.work[r]->added_variance, whole.work[r]->added_variance,
                    1e-6 * whole.work[r]->added_variance);
      }
    }
  }
}

TEST(Chunks, ForwardOutputsHaveTheBitsOfOneGo) {
  MoeConfig c = testing::small_layer(RouterKind::softmax, true, 1.0);
  c.hidden = 64;
  c.expert_width = 48;
  const auto w = testing::random_weights(c, 31);
  const at::Tensor x = testing::randn({512, c.hidden}, 32);
  const auto whole =
      testing::ranked_layer(x, x, w, c, *lrmoe_strategy(sampled(1.0)), on_ranks(2, at::kFloat));
  for (const int chunks : {2, 4}) {
    const auto strategy = chunked(lrmoe_strategy(sampled(1.0)), chunks);
    const auto got = testing::ranked_layer(x, x, w, c, *strategy, on_ranks(2, at::kFloat));
    EXPECT_TRUE(at::equal(got.out, whole.out)) << chunks << " chunks";
    EXPECT_LT(testing::relative_error(got.down_grad, whole.down_grad), 1e-5);
  }
}

}  // namespace
}  // namespace lrmoe
