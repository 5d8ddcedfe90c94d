// The layer over thread ranks against a naive loop in plain autograd.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "lrmoe/moe/router.h"
#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

using model::MoeConfig;
using model::RouterKind;

struct Case {
  std::string name;
  MoeConfig config;
  std::int64_t tokens = 37;
  int spare = 2;  // slots beyond ceil(E / R)
};

MoeConfig small(RouterKind router, bool renormalise, double scale, int experts = 6, int k = 2) {
  return {10, experts, k, 7, router, renormalise, scale, 1e-3};
}

std::vector<Case> cases() {
  return {
      {"softmax", small(RouterKind::softmax, true, 1.0)},
      {"softmax_not_renormalised", small(RouterKind::softmax, false, 1.0)},
      {"sigmoid_scaled", small(RouterKind::sigmoid, true, 2.5)},
      {"sigmoid_not_renormalised", small(RouterKind::sigmoid, false, 1.0)},
      {"k_equals_E", small(RouterKind::softmax, true, 1.0, 5, 5)},
      {"fewer_experts_than_ranks", small(RouterKind::softmax, true, 1.0, 3, 2)},
      {"one_token", small(RouterKind::softmax, true, 1.0), 1},
      // Not renormalised: one gate over itself is 1, and its gradient pure cancellation.
      {"one_expert_each", small(RouterKind::softmax, false, 1.0, 13, 1)},
  };
}

void expect_equal(const testing::RankedResult& got, const at::Tensor& x,
                  const testing::LayerWeights& w, const testing::ReferenceResult& want,
                  double tolerance) {
  EXPECT_LT(testing::relative_error(got.out, want.out), tolerance);
  EXPECT_LT(testing::relative_error(got.dx, x.grad()), tolerance);
  EXPECT_LT(testing::relative_error(got.router_grad, w.router.grad()), tolerance);
  EXPECT_LT(testing::relative_error(got.gate_up_grad, w.gate_up.grad()), tolerance);
  EXPECT_LT(testing::relative_error(got.down_grad, w.down.grad()), tolerance);
  EXPECT_NEAR(got.aux, want.aux.item<double>(), tolerance * 10);
}

class LayerTest : public ::testing::TestWithParam<int> {};

TEST_P(LayerTest, EqualsPlainAutograd) {
  const int ranks = GetParam();
  for (const auto& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto w = testing::random_weights(c.config, 11);
    at::Tensor x = testing::randn({c.tokens, c.config.hidden}, 12).requires_grad_();
    const at::Tensor direction = testing::randn({c.tokens, c.config.hidden}, 13);
    const auto want = testing::reference_layer(x, w, c.config);
    torch::autograd::backward({(want.out * direction).sum() + 0.3 * want.aux}, {});

    testing::RankedOptions options;
    options.ranks = ranks;
    options.aux_weight = 0.3;
    options.slots = (c.config.experts + ranks - 1) / ranks + c.spare;
    const auto scattered = testing::scattered_strategy(5);
    const auto fixed = plan::make_strategy({.name = "fixed"});
    const auto symi = plan::make_strategy({.name = "symi"});
    for (const auto* strategy : {scattered.get(), fixed.get(), symi.get()}) {
      SCOPED_TRACE(std::string(strategy->name()));
      options.dtype = at::kDouble;
      expect_equal(testing::ranked_layer(x, direction, w, c.config, *strategy, options), x, w, want,
                   1e-10);
      options.dtype = at::kFloat;
      expect_equal(testing::ranked_layer(x, direction, w, c.config, *strategy, options), x, w, want,
                   1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayerTest, ::testing::Values(1, 2, 4, 8));

// A router that sends every token to the experts listed, by a constant feature.
testing::LayerWeights favouring(const MoeConfig& c, const std::vector<int>& favoured) {
  auto w = testing::random_weights(c, 3);
  const at::NoGradGuard no_grad;
  for (const int e : favoured) {
    w.router[e][0] += 1000.0;
  }
  return w;
}

TEST(LayerEdges, AllTokensToOneExpertAndRanksWithoutTokens) {
  const MoeConfig c = small(RouterKind::softmax, true, 1.0, 6, 1);
  auto w = favouring(c, {4});
  at::Tensor x = testing::randn({20, c.hidden}, 21);
  x.select(1, 0).fill_(1.0);
  x.requires_grad_();
  const at::Tensor direction = testing::randn({20, c.hidden}, 22);
  const auto want = testing::reference_layer(x, w, c);
  for (const auto e : want.experts) {
    ASSERT_EQ(e, 4);
  }
  torch::autograd::backward({(want.out * direction).sum()}, {});
  testing::RankedOptions options;
  options.ranks = 4;
  options.slots = 3;
  options.tokens = {0, 13, 0, 7};
  const auto strategy = testing::scattered_strategy(9);
  const auto got = testing::ranked_layer(x, direction, w, c, *strategy, options);
  EXPECT_LT(testing::relative_error(got.out, want.out), 1e-10);
  EXPECT_LT(testing::relative_error(got.dx, x.grad()), 1e-10);
  EXPECT_LT(testing::relative_error(got.gate_up_grad, w.gate_up.grad()), 1e-10);
  EXPECT_EQ(got.gate_up_grad[0].abs().max().item<double>(), 0.0);
}

TEST(LayerEdges, DropsAreCountedAndLeftOutOfBothPasses) {
  const MoeConfig c = small(RouterKind::softmax, true, 1.0, 4, 1);
  auto w = favouring(c, {2});
  at::Tensor x = testing::randn({16, c.hidden}, 31);
  x.select(1, 0).fill_(1.0);
  x.requires_grad_();
  const at::Tensor direction = testing::randn({16, c.hidden}, 32);
  testing::RankedOptions options;
  options.ranks = 2;
  options.slots = 2;
  // All 16 pairs want expert 2, whose capacity is floor(1 * 16 / 4) = 4: two
  // from each rank, the first ones.
  const auto strategy = plan::make_strategy({.name = "fixed-capacity", .capacity_factor = 1.0});
  const auto got = testing::ranked_layer(x, direction, w, c, *strategy, options);
  EXPECT_EQ(got.dropped, 16 - 4);
  const auto want =
      testing::reference_layer(x, w, c, [](std::int64_t pair) { return pair % 8 < 2; });
  torch::autograd::backward({(want.out * direction).sum()}, {});
  EXPECT_LT(testing::relative_error(got.out, want.out), 1e-10);
  EXPECT_LT(testing::relative_error(got.dx, x.grad()), 1e-10);
  EXPECT_LT(testing::relative_error(got.down_grad, w.down.grad()), 1e-10);
}

TEST(LayerEdges, TokensTravelOncePerRank) {
  // k = E on one rank: each token has E pairs but is one row.
  const MoeConfig c = small(RouterKind::softmax, true, 1.0, 4, 4);
  const auto w = testing::random_weights(c, 3);
  const at::Tensor x = testing::randn({9, c.hidden}, 41);
  testing::RankedOptions options;
  options.ranks = 2;
  options.slots = 2;
  const auto fixed = plan::make_strategy({.name = "fixed"});
  const auto got = testing::ranked_layer(x, x, w, c, *fixed, options);
  for (std::size_t r = 0; r < 2; ++r) {
    const auto& work = *got.work[r];
    const auto other = 1 - r;
    EXPECT_EQ(work.forward_rows[other], work.tokens);
    EXPECT_EQ(work.forward_pairs[other], 2 * work.tokens);
    // x rows there, outputs of the other's rows back, gates and row numbers
    // per pair, one row count.
    const std::int64_t d = c.hidden * 8;
    const std::int64_t theirs = got.work[other]->tokens;
    EXPECT_EQ(work.forward_bytes, d * work.tokens + d * theirs + (8 + 4) * 2 * work.tokens + 4);
    EXPECT_EQ(work.backward_bytes, d * work.tokens + d * theirs + 8 * 2 * theirs);
  }
}

TEST(Router, WhateverTheLogitsHoldIdsAreDistinctAndInRange) {
  ::testing::internal::CaptureStderr();
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto kind : {RouterKind::softmax, RouterKind::sigmoid}) {
    MoeConfig c = small(kind, true, 1.0, 6, 3);
    c.hidden = 6;
    // The weight is the identity, so x holds the logits.
    const at::Tensor weight = at::eye(6, at::kFloat);
    const at::Tensor x = at::tensor({0.0, 0.0, 0.0, 0.0, 0.0, 0.0,  //
                                     1.0, 1.0, 1.0, 1.0, 1.0, 1.0})
                             .view({2, 6})
                             .to(at::kFloat);
    at::Tensor bad = at::empty({4, 6}, at::kFloat);
    bad[0].fill_(nan);
    bad[1].fill_(inf);
    bad[2].fill_(-inf);
    bad[3] = at::tensor({nan, 1.0, inf, -inf, nan, 2.0}).to(at::kFloat);
    for (const auto& logits : {x, bad}) {
      const auto routing = moe::route(logits, weight, {}, c);
      for (std::int64_t t = 0; t < logits.size(0); ++t) {
        std::set<std::int64_t> seen;
        for (int j = 0; j < 3; ++j) {
          const auto id = routing.ids[t][j].item<std::int64_t>();
          EXPECT_TRUE(id >= 0 && id < 6);
          seen.insert(id);
        }
        EXPECT_EQ(seen.size(), 3U);
      }
      EXPECT_TRUE(at::isfinite(routing.gates).all().item<bool>());
    }
  }
  const std::string printed = ::testing::internal::GetCapturedStderr();
  const auto first = printed.find("logits that are NaN or infinite");
  EXPECT_NE(first, std::string::npos) << printed;
  EXPECT_EQ(printed.find("logits that are NaN or infinite", first + 1), std::string::npos)
      << printed;
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  MoeConfig c = small(RouterKind::sigmoid, false, 1.0, 4, 1);
  c.hidden = 4;
  const at::Tensor weight = at::eye(4, at::kDouble);
  const at::Tensor x = at::tensor({0.5, 0.4, 0.0, 0.0}, at::kDouble).view({1, 4});
  const at::Tensor bias = at::tensor({0.0, 0.2, 0.0, 0.0}, at::kDouble);
  const auto routing = moe::route(x, weight, bias, c);
  EXPECT_EQ(routing.ids.item<std::int64_t>(), 1);
  EXPECT_NEAR(routing.gates.item<double>(), 1.0 / (1.0 + std::exp(-0.4)), 1e-12);
}

}  // namespace
}  // namespace lrmoe
