// Activation mode quota: the cache, the routes of cached pairs, and gradients that are
// those of recomputing.
#include <gtest/gtest.h>

#include "lrmoe/moe/cache.h"
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

TEST(QuotaCache, HoldsTheLikeliestPairsAsManyAsTheBackwardPassHas) {
  plan::RankPlan plan;
  plan.cluster = {2, 3, 2, 1, 0};
  moe::ExpertSlots slots;
  slots.placement = plan::Placement(2, 2);
  slots.placement.values = {0, 1, 2, 1};
  slots.rank = 0;
  plan.receives = {{0, 0, 0, 4}, {0, 1, 0, 2}, {1, 1, 0, 2}};
  plan.kept_receives = {{0, 0, 0, 2}, {0, 1, 0, 1}, {1, 1, 0, 5}};
  const std::vector<moe::Group> groups = {{0, 0, 4}, {1, 4, 8}};
  const at::Tensor likely = at::tensor({1.0F, 4.0F, 3.0F, 2.0F, 1.0F, -1.0F, 2.0F, 2.0F});
  moe::CacheRoom room(plan, slots);
  // Expert 0: two of four. Expert 1: six could come back, but only three may be selected.
  EXPECT_TRUE(at::equal(room.choose(likely, groups),
                        at::tensor({0, 1, 1, 0, 1, 0, 1, 1}, at::kInt).to(at::kBool)));
  // In two chunks: one of two of expert 0 in each.
  moe::CacheRoom halves(plan, slots);
  const std::vector<moe::Group> half = {{0, 0, 2}, {1, 2, 4}};
  EXPECT_TRUE(at::equal(halves.choose(at::tensor({1.0F, 4.0F, 1.0F, -1.0F}), half),
                        at::tensor({0, 1, 1, 0}, at::kInt).to(at::kBool)));
  EXPECT_TRUE(at::equal(halves.choose(at::tensor({3.0F, 2.0F, 2.0F, 2.0F}), half),
                        at::tensor({1, 0, 1, 1}, at::kInt).to(at::kBool)));
}

TEST(QuotaCache, CachedPairsFillTheSplitAtTheirOwnInstance) {
  // Pairs 0..6 of expert 0, 7 of expert 1; 3 was not kept.
  const std::vector<std::int64_t> experts = {0, 0, 0, 2, 0, 0, 0, 1};
  const std::vector<std::int32_t> home = {1, 1, 1, 1, 0, -1, 0, -1};
  const std::vector<plan::Route> routes = {{0, 0, 0, 2}, {0, 0, 1, 2}, {0, 0, 2, 2}, {0, 1, 0, 1}};
  const auto pairs = moe::route_cached(experts, 2, routes, 3, home);
  EXPECT_EQ(pairs.per_rank, (std::vector<std::int64_t>{3, 2, 2}));
  // 0 and 1 at rank 1, which has no room for 2; 4 and 6 at rank 0.
  EXPECT_EQ(pairs.pair, (std::vector<std::int64_t>{4, 6, 7, 0, 1, 2, 5}));
}

// To the rounding of fp32, which scores and the weights 1/pi have.
TEST(QuotaCache, GradientsAreThoseOfRecomputing) {
  const MoeConfig c = testing::small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 41);
  const at::Tensor x = testing::randn({90, c.hidden}, 42);
  const at::Tensor direction = testing::randn({90, c.hidden}, 43);
  for (const double ratio : {1.0, 0.5, 0.2}) {
    for (const int variant : {0, 1, 2}) {
      plan::LrmoeOptions options = sampled(ratio, Activations::recompute);
      if (variant == 1) {
        options.shortlist = 0.6;
      } else if (variant == 2) {
        options.router_gradient = plan::RouterGradient::exact;
        options.metric = plan::Metric::exact;
      }
      for (const int ranks : {1, 2, 4}) {
        const auto want =
            testing::ranked_layer(x, direction, w, c, *lrmoe_strategy(options), on_ranks(ranks));
        plan::LrmoeOptions cached = options;
        cached.activations = Activations::quota;
        for (const int chunks : {1, 3}) {
          const auto strategy = chunked(lrmoe_strategy(cached), chunks);
          const auto got = testing::ranked_layer(x, direction, w, c, *strategy, on_ranks(ranks));
          EXPECT_LT(testing::relative_error(got.out, want.out), 1e-12);
          EXPECT_LT(testing::relative_error(got.dx, want.dx), 1e-6);
          EXPECT_LT(testing::relative_error(got.router_grad, want.router_grad), 1e-6);
          EXPECT_LT(testing::relative_error(got.gate_up_grad, want.gate_up_grad), 1e-6);
          EXPECT_LT(testing::relative_error(got.down_grad, want.down_grad), 1e-6);
          std::int64_t got_bytes = 0, want_bytes = 0;
          std::int64_t again = 0, computed = 0, cached_pairs = 0;
          for (std::size_t r = 0; r < got.work.size(); ++r) {
            got_bytes += got.work[r]->backward_bytes;
            want_bytes += want.work[r]->backward_bytes;
            EXPECT_EQ(got.work[r]->backward_gemm_rows, want.work[r]->backward_gemm_rows);
            // What the clock is told of the cache.
            EXPECT_EQ(got.work[r]->chunks, chunks);
            EXPECT_FALSE(got.work[r]->recompute);
            cached_pairs += got.work[r]->cached_pairs;
            for (std::size_t i = 0; i < got.work[r]->again_gemm_rows.size(); ++i) {
              EXPECT_LE(got.work[r]->again_gemm_rows[i], got.work[r]->backward_gemm_rows[i]);
              again += got.work[r]->again_gemm_rows[i];
            }
            for (std::size_t i = 0; i < got.work[r]->again_rows.size(); ++i) {
              EXPECT_LE(got.work[r]->again_rows[i], got.work[r]->backward_rows[i]);
            }
            for (const std::int32_t rows : got.work[r]->backward_gemm_rows) {
              computed += rows;
            }
          }
          EXPECT_LE(cached_pairs, computed);
          EXPECT_GE(cached_pairs, ratio < 1.0 ? 1 : 0);
          EXPECT_GE(again, ratio < 1.0 ? computed - cached_pairs : 0);
          EXPECT_LT(again, computed);
          if (ranks > 1 && chunks == 1 && ratio < 1.0) {
            EXPECT_LT(got_bytes, want_bytes);  // x of cached pairs stays where it is
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lrmoe
