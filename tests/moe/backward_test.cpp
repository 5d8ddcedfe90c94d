// The backward pass of a part of the pairs: exact where all are kept, unbiased
// where they are sampled, and as small as the quotas say.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lrmoe/moe/router.h"
#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

using model::MoeConfig;
using model::RouterKind;
using plan::Activations;
using plan::Metric;
using plan::RouterGradient;
using testing::lrmoe_strategy;
using testing::on_ranks;
using testing::sampled;
using testing::small_layer;

TEST(Backward, KeepAllEqualsPlainAutogradInBothActivationModes) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 11);
  at::Tensor x = testing::randn({40, c.hidden}, 12).requires_grad_();
  const at::Tensor direction = testing::randn({40, c.hidden}, 13);
  const auto want = testing::reference_layer(x, w, c);
  torch::autograd::backward({(want.out * direction).sum()}, {});
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    for (const int ranks : {1, 2, 4, 8}) {
      const auto strategy = lrmoe_strategy(sampled(1.0, activations));
      const auto got = testing::ranked_layer(x, direction, w, c, *strategy, on_ranks(ranks));
      EXPECT_LT(testing::relative_error(got.out, want.out), 1e-10);
      EXPECT_LT(testing::relative_error(got.dx, x.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.router_grad, w.router.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.gate_up_grad, w.gate_up.grad()), 1e-10);
      EXPECT_LT(testing::relative_error(got.down_grad, w.down.grad()), 1e-10);
      for (const auto& work : got.work) {
        EXPECT_EQ(work->statistics_bytes, 0);
        EXPECT_EQ(work->scored_pairs, 0);
      }
    }
  }
}

TEST(Backward, ForwardOutputsHaveTheSameBitsWhateverIsKept) {
  const MoeConfig c = small_layer(RouterKind::sigmoid, true, 2.5);
  const auto w = testing::random_weights(c, 21);
  const at::Tensor x = testing::randn({50, c.hidden}, 22);
  std::vector<plan::LrmoeOptions> all;
  for (const double ratio : {1.0, 0.5, 0.1}) {
    for (const auto metric :
         {Metric::gate, Metric::gate_grad, Metric::down_norm, Metric::update_norm,
          Metric::update_router, Metric::exact, Metric::random}) {
      for (const auto mode : {plan::SelectMode::sampled, plan::SelectMode::top}) {
        for (const auto activations : {Activations::keep, Activations::recompute}) {
          plan::LrmoeOptions o = sampled(ratio, activations);
          o.metric = metric;
          o.mode = mode;
          o.router_gradient = static_cast<RouterGradient>(all.size() % 4);
          all.push_back(o);
        }
      }
    }
  }
  at::Tensor first;
  for (const auto& o : all) {
    const auto strategy = lrmoe_strategy(o);
    const auto got = testing::ranked_layer(x, x, w, c, *strategy, on_ranks(4, at::kFloat));
    if (!first.defined()) {
      first = got.out;
    }
    EXPECT_TRUE(at::equal(got.out, first)) << "metric " << static_cast<int>(o.metric);
  }
}

// Rows and pairs of a backward pass, recounted from the experts' ids and the plan.
TEST(Backward, KeptPairsAreTheQuotaAndTrafficFallsWithIt) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 31);
  const at::Tensor x = testing::randn({400, c.hidden}, 32);
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    std::int64_t bytes_before = std::numeric_limits<std::int64_t>::max();
    std::int64_t rows_before = bytes_before;
    for (const double ratio : {0.999, 0.5, 0.25, 0.1, 0.02}) {
      const auto strategy = lrmoe_strategy(sampled(ratio, activations));
      const auto got = testing::ranked_layer(x, x, w, c, *strategy, on_ranks(4));
      const plan::Plan& plan = got.plans.at(0);
      std::int64_t bytes = 0, gemm_rows = 0, kept = 0;
      for (int r = 0; r < 4; ++r) {
        const auto& work = *got.work[static_cast<std::size_t>(r)];
        std::vector<std::int32_t> pairs(4, 0);
        for (const auto& route : plan.backward) {
          if (route.source == r) {
            pairs[static_cast<std::size_t>(route.rank)] += route.pairs;
          }
        }
        EXPECT_EQ(work.backward_pairs, pairs);
        for (std::size_t d = 0; d < 4; ++d) {
          EXPECT_LE(work.backward_rows[d], work.backward_pairs[d]);
          EXPECT_LE(work.backward_rows[d], work.tokens);
        }
        for (const auto rows : work.backward_gemm_rows) {
          gemm_rows += rows;
        }
        bytes += work.backward_bytes;
      }
      for (const auto q : plan.quota.values) {
        kept += q;
      }
      EXPECT_EQ(gemm_rows, kept);
      EXPECT_NEAR(kept, ratio * 400 * c.top_k, std::max(1.0, 0.03 * 400 * c.top_k));
      EXPECT_LT(bytes, bytes_before);
      EXPECT_LT(gemm_rows, rows_before);
      bytes_before = bytes;
      rows_before = gemm_rows;
    }
  }
}

// With metric gate and mode top the kept pairs follow from ids and gates alone:
// in every cell the largest gates. So do the rows of both passes.
TEST(Backward, RowsAreARecountFromIds) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 35);
  const at::Tensor x = testing::randn({120, c.hidden}, 36);
  const auto routing = moe::route(x, w.router.detach(), {}, c);
  plan::LrmoeOptions o = sampled(0.3);
  o.metric = Metric::gate;
  o.mode = plan::SelectMode::top;
  const auto got = testing::ranked_layer(x, x, w, c, *lrmoe_strategy(o), on_ranks(4));
  const plan::Plan& plan = got.plans.at(0);
  for (int source = 0; source < 4; ++source) {
    std::vector<std::set<std::int64_t>> forward(4), backward(4);  // tokens by destination
    for (int e = 0; e < c.experts; ++e) {
      std::vector<std::int64_t> pairs;  // of this source and expert, in order
      for (std::int64_t pair = source * 30 * c.top_k; pair < (source + 1) * 30 * c.top_k; ++pair) {
        if (routing.ids.flatten()[pair].item<std::int64_t>() == e) {
          pairs.push_back(pair);
        }
      }
      auto next = pairs.begin();
      for (const plan::Route& route : plan.forward) {
        if (route.source != source || route.expert != e) {
          continue;
        }
        std::vector<std::int64_t> here(next, next + route.pairs);
        next += route.pairs;
        for (const auto pair : here) {
          forward[static_cast<std::size_t>(route.rank)].insert(pair / c.top_k);
        }
        std::stable_sort(here.begin(), here.end(), [&](std::int64_t a, std::int64_t b) {
          const at::Tensor gates = routing.gates.flatten();
          return gates[a].item<float>() > gates[b].item<float>();
        });
        std::int32_t quota = 0;
        for (const plan::Route& kept : plan.backward) {
          if (kept.source == source && kept.expert == e && kept.rank == route.rank) {
            quota = kept.pairs;
          }
        }
        for (std::int32_t i = 0; i < quota; ++i) {
          backward[static_cast<std::size_t>(route.rank)].insert(here[static_cast<std::size_t>(i)] /
                                                                c.top_k);
        }
      }
    }
    const auto& work = *got.work[static_cast<std::size_t>(source)];
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(work.forward_rows[rank], static_cast<std::int32_t>(forward[rank].size()));
      EXPECT_EQ(work.backward_rows[rank], static_cast<std::int32_t>(backward[rank].size()));
    }
  }
}

TEST(Backward, BytesAreARecountFromRows) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 33);
  const at::Tensor x = testing::randn({120, c.hidden}, 34);
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    const auto strategy = lrmoe_strategy(sampled(0.3, activations));
    const auto got = testing::ranked_layer(x, x, w, c, *strategy, on_ranks(3));
    for (std::size_t r = 0; r < 3; ++r) {
      const auto& work = *got.work[r];
      std::int64_t rows_out = 0, pairs_out = 0, rows_in = 0, pairs_in = 0;
      for (std::size_t other = 0; other < 3; ++other) {
        if (other != r) {
          rows_out += work.backward_rows[other];
          pairs_out += work.backward_pairs[other];
          rows_in += got.work[other]->backward_rows[r];
          pairs_in += got.work[other]->backward_pairs[r];
        }
      }
      const bool keep = activations == Activations::keep;
      // delta (and x) rows out, dx rows back; per pair: two numbers (8 bytes
      // each in fp64) and a row number out (keep: the forward place too), dp back.
      const std::int64_t row = c.hidden * 8;
      EXPECT_EQ(work.backward_bytes, row * rows_out * (keep ? 1 : 2) + row * rows_in +
                                         pairs_out * (16 + 4 + (keep ? 4 : 0)) + pairs_in * 8 +
                                         4 * 2);
    }
  }
}

TEST(Backward, ExactRouterGradientIsThatOfAllPairs) {
  for (const auto kind : {RouterKind::softmax, RouterKind::sigmoid}) {
    const MoeConfig c = small_layer(kind, true, 2.5);
    const auto w = testing::random_weights(c, 61);
    const at::Tensor x = testing::randn({40, c.hidden}, 62);
    const at::Tensor direction = testing::randn({40, c.hidden}, 63);
    const auto whole =
        testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(sampled(1.0)), on_ranks(4));
    plan::LrmoeOptions o = sampled(0.2);
    o.router_gradient = RouterGradient::exact;
    const auto got = testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(o), on_ranks(4));
    EXPECT_LT(testing::relative_error(got.router_grad, whole.router_grad), 1e-10);
    EXPECT_GT(testing::relative_error(got.down_grad, whole.down_grad), 1e-3);
  }
}

TEST(Backward, TokensWithoutDeltaAddNothingAndCostNoVariance) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 71);
  const at::Tensor x = testing::randn({64, c.hidden}, 72);
  at::Tensor direction = testing::randn({64, c.hidden}, 73);
  direction.slice(0, 0, 56).zero_();  // delta = 0 but for 8 tokens: 24 of 192 pairs
  const auto whole =
      testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(sampled(1.0)), on_ranks(1));
  const auto half =
      testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(sampled(0.5)), on_ranks(1));
  EXPECT_LT(testing::relative_error(half.gate_up_grad, whole.gate_up_grad), 1e-9);
  EXPECT_LT(testing::relative_error(half.down_grad, whole.down_grad), 1e-9);
  EXPECT_LT(testing::relative_error(half.dx, whole.dx), 1e-9);
  EXPECT_LT(half.work[0]->added_variance, 1e-9 * half.work[0]->total_variance);
}

TEST(Backward, DefinedWhereEverythingIsZeroOrOneExpertHasAll) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  auto w = testing::random_weights(c, 81);
  const at::Tensor x = testing::randn({30, c.hidden}, 82);
  const auto finite = [](const testing::RankedResult& r) {
    for (const auto& t : {r.out, r.dx, r.router_grad, r.gate_up_grad, r.down_grad}) {
      EXPECT_TRUE(at::isfinite(t).all().item<bool>());
    }
  };
  for (const auto activations : {Activations::keep, Activations::recompute}) {
    for (const double ratio : {0.5, 1e-6}) {  // 1e-6: the floors bind
      const auto strategy = lrmoe_strategy(sampled(ratio, activations));
      const auto zero = testing::ranked_layer(x, at::zeros_like(x), w, c, *strategy, on_ranks(4));
      finite(zero);
      EXPECT_EQ(zero.down_grad.abs().max().item<double>(), 0.0);
      EXPECT_EQ(zero.router_grad.abs().max().item<double>(), 0.0);
      finite(testing::ranked_layer(x, x, w, c, *strategy, on_ranks(4)));
      testing::RankedOptions lopsided = on_ranks(4);
      lopsided.tokens = {0, 29, 0, 1};
      finite(testing::ranked_layer(x, x, w, c, *strategy, lopsided));
    }
  }
  MoeConfig one = c;
  one.top_k = 1;
  const at::NoGradGuard no_grad;
  at::Tensor marked = x.clone();
  marked.select(1, 0).fill_(1.0);
  w.router[5][0] += 1000.0;
  const at::AutoGradMode with_grad(true);
  finite(
      testing::ranked_layer(marked, marked, w, one, *lrmoe_strategy(sampled(0.25)), on_ranks(4)));
}

TEST(Backward, ShortlistsLeaveTheQuotaExact) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 91);
  const at::Tensor x = testing::randn({200, c.hidden}, 92);
  for (const auto by : {plan::ShortlistBy::gate, plan::ShortlistBy::output}) {
    for (const auto activations : {Activations::keep, Activations::recompute}) {
      plan::LrmoeOptions o = sampled(0.25, activations);
      o.shortlist = 0.4;
      o.shortlist_by = by;
      o.router_gradient = RouterGradient::exact;
      const auto got = testing::ranked_layer(x, x, w, c, *lrmoe_strategy(o), on_ranks(4));
      std::int64_t kept = 0;
      for (const auto& work : got.work) {
        for (const auto pairs : work->backward_pairs) {
          kept += pairs;
        }
      }
      EXPECT_EQ(kept, 150);
    }
  }
}

// With a quota as large as the shortlist the gradients are exactly those of the
// listed pairs: the ranks' largest gates.
TEST(Backward, AShortlistByGateKeepsItsPairsAndOnlyTheirActivations) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  for (const int ranks : {1, 4}) {
    auto w = testing::random_weights(c, 95);
    const at::Tensor x = testing::randn({80, c.hidden}, 96);
    const at::Tensor direction = testing::randn({80, c.hidden}, 97);
    const std::int64_t pairs = 80 * c.top_k, per_rank = pairs / ranks;
    at::Tensor listed = at::zeros({pairs}, at::kBool);
    {
      const at::NoGradGuard no_grad;
      const at::Tensor gates = moe::route(x, w.router, {}, c).gates.flatten();
      for (int r = 0; r < ranks; ++r) {
        const at::Tensor best = std::get<1>(gates.narrow(0, r * per_rank, per_rank).sort(0, true));
        listed.index_fill_(0, best.slice(0, 0, per_rank * 2 / 5) + r * per_rank, true);
      }
    }
    const auto want = testing::reference_layer(
        x, w, c, [&](std::int64_t pair) { return listed[pair].item<bool>(); });
    torch::autograd::backward({(want.out * direction).sum()}, {});
    const auto whole =
        testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(sampled(1.0)), on_ranks(ranks));
    for (const auto activations : {Activations::keep, Activations::recompute}) {
      plan::LrmoeOptions o = sampled(0.4, activations);
      o.shortlist = 0.4;
      o.router_gradient = RouterGradient::exact;
      const auto got =
          testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(o), on_ranks(ranks));
      // 0.4 is not a multiple of 2^-24, so the quota is a hair below the shortlist.
      EXPECT_LT(testing::relative_error(got.gate_up_grad, w.gate_up.grad()), 1e-6);
      EXPECT_LT(testing::relative_error(got.down_grad, w.down.grad()), 1e-6);
      EXPECT_LT(testing::relative_error(got.router_grad, whole.router_grad), 1e-10);
      EXPECT_LT(testing::relative_error(got.out, whole.out), 1e-12);
      plan::check_plan(got.plans.at(0));
      o.ratio = 0.1;
      const auto fewer =
          testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(o), on_ranks(ranks));
      plan::check_plan(fewer.plans.at(0));
      std::int64_t kept = 0;
      for (const auto q : fewer.plans.at(0).quota.values) {
        kept += q;
      }
      EXPECT_NEAR(kept, 0.1 * 240, 1.0);
    }
  }
}

TEST(Backward, AShortlistNeverRoundsToNothing) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 95);
  const at::Tensor x = testing::randn({80, c.hidden}, 96);
  plan::LrmoeOptions o = sampled(1e-6);
  o.shortlist = 1e-6;  // of 60 pairs a rank: one stays
  const auto got = testing::ranked_layer(x, x, w, c, *lrmoe_strategy(o), on_ranks(4));
  EXPECT_FALSE(got.plans.at(0).keep_all);
  std::int64_t kept = 0;
  for (const auto q : got.plans.at(0).quota.values) {
    kept += q;
  }
  EXPECT_LE(kept, 4);
}

TEST(Backward, TheGuardKeepsAllWhereSamplingWouldCostTooMuchAndStillLearns) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 98);
  const at::Tensor x = testing::randn({100, c.hidden}, 99);
  const auto whole = testing::ranked_layer(x, x, w, c, *lrmoe_strategy(sampled(1.0)), on_ranks(4));
  plan::LrmoeOptions o = sampled(0.25);
  o.variance_limit = 1e-3;
  const auto guarded = testing::ranked_layer(x, x, w, c, *lrmoe_strategy(o), on_ranks(4));
  EXPECT_TRUE(guarded.plans.at(0).keep_all);
  ASSERT_EQ(guarded.plans.at(0).notes.size(), 1U);
  EXPECT_NE(guarded.plans.at(0).notes[0].find("variance_limit"), std::string::npos);
  EXPECT_LT(testing::relative_error(guarded.down_grad, whole.down_grad), 1e-12);
  EXPECT_LT(testing::relative_error(guarded.router_grad, whole.router_grad), 1e-12);
  EXPECT_GT(guarded.work[0]->scored_pairs, 0);
  o.variance_limit = 1e3;
  EXPECT_FALSE(
      testing::ranked_layer(x, x, w, c, *lrmoe_strategy(o), on_ranks(4)).plans.at(0).keep_all);
}

}  // namespace
}  // namespace lrmoe
