// The clock's backward pass: kept pairs, recomputing, chunks and the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lrmoe/cost/clock.h"
#include "lrmoe/cost/kernels.h"
#include "tests/cost/helpers.h"

namespace lrmoe::cost {
namespace {

using namespace test;

TEST(Clock, HalfTheBackwardPairsTakeHalfTheBackwardFlops) {
  const StepWork whole = step_of(ranks_that_send({100, 100}));
  StepWork half = whole;
  for (LayerWork& w : half.layers[0][0]) {
    w.backward_pairs = w.backward_rows = {50, 50};
    w.backward_gemm_rows = {100};
  }
  const Seconds all = price(whole, flops_only());
  const Seconds kept = price(half, flops_only());
  EXPECT_DOUBLE_EQ(kept.forward, all.forward);
  EXPECT_DOUBLE_EQ(kept.backward, all.backward / 2);

  // On hardware it is lower, but not half: weights are read all the same.
  Shape shape = find_shape("qwen3-30b-a3b", {});
  const Profile h200 = find_profile("h200-ib");
  const Seconds real = price(whole, h200, 100, shape);
  const Seconds real_half = price(half, h200, 100, shape);
  EXPECT_DOUBLE_EQ(real_half.forward, real.forward);
  EXPECT_LT(real_half.backward, 0.9 * real.backward);
  EXPECT_GT(real_half.backward, 0.5 * real.backward);
}

TEST(Clock, RecomputingCostsFourMoreAndBringsXAgain) {
  const StepWork keep = step_of(ranks_that_send({100, 100}));
  StepWork recompute = keep;
  for (LayerWork& w : recompute.layers[0][0]) {
    w.recompute = true;
  }
  EXPECT_DOUBLE_EQ(price(recompute, flops_only()).backward,
                   price(keep, flops_only()).backward * 16 / 12);
  EXPECT_NEAR((price(recompute, link_only(0)).backward - price(keep, link_only(0)).backward) * 1e6,
              100 * 16, 1e-6);
}

/// 400 rows on one expert: in four chunks they are four GEMMs of 100, at the rate that
/// 100 rows reach.
TEST(Clock, ChunksRunAtTheRateOfTheirOwnRows) {
  Profile p = flops_only();
  p.gemm = {{100, 0.25}, {400, 1.0}};
  StepWork step = step_of(ranks_that_send({400}));
  const Seconds one = price(step, p);
  EXPECT_DOUBLE_EQ(one.forward, 400 * 6 * 32 / 1e9);
  step.layers[0][0][0].chunks = 4;
  const Seconds four = price(step, p);
  EXPECT_DOUBLE_EQ(four.forward, 4 * (100 * 6 * 32 / (0.25 * 1e9)));
  EXPECT_DOUBLE_EQ(four.backward, 4 * (100 * 12 * 32 / (0.25 * 1e9)));
  // Every chunk is what a step of its tokens is: launches, weights, passes over memory.
  p.launch = 1e-3;
  p.memory_bandwidth = 1e9;
  const Seconds chunked = price(step, p);
  const Seconds quarter = price(step_of(ranks_that_send({100})), p);
  EXPECT_NEAR(chunked.forward, 4 * quarter.forward, 1e-12);
  EXPECT_NEAR(chunked.backward, 4 * quarter.backward, 1e-12);
}

TEST(Clock, ChunksPayEveryCollectivesLatencyAndSendTheSameRows) {
  Profile p = free_profile();
  p.intra.latency = 1;
  StepWork step = step_of(ranks_that_send({100, 100}));
  for (LayerWork& w : step.layers[0][0]) {
    w.backward_pairs = {50, 50};  // selected: their counts are told
    w.plan_cells = 8;
    w.fetched_instances = 1;
  }
  ClockOptions options{.profile = p, .shape = small_shape()};
  const LayerCost one = price_step(step, options).total;
  EXPECT_DOUBLE_EQ(one.seconds.forward, 5);  // demand, fetch; counts, dispatch, combine
  EXPECT_DOUBLE_EQ(one.seconds.backward, 3);
  for (LayerWork& w : step.layers[0][0]) {
    w.chunks = 4;
  }
  const LayerCost four = price_step(step, options).total;
  EXPECT_DOUBLE_EQ(four.seconds.forward, 2 + 1 + 4 * 3);  // one more: how the pairs divide
  EXPECT_DOUBLE_EQ(four.seconds.backward, 1 + 4 * 3);
  EXPECT_DOUBLE_EQ(four.seconds.fetch, one.seconds.fetch);
  EXPECT_EQ(four.bytes.weights, one.bytes.weights);
  // Beside the rows: 4 bytes per chunk and instance, and three more counts.
  EXPECT_DOUBLE_EQ(four.bytes.forward - one.bytes.forward, 2 * (4 * 4 + 3 * 4));
  EXPECT_DOUBLE_EQ(four.bytes.backward - one.bytes.backward, 2 * (4 * 4 + 3 * 4));
}

TEST(Clock, WhatWasNotCachedIsDoneAgain) {
  // 50 of the 200 pairs that a rank computes backward were not cached.
  StepWork quota = step_of(ranks_that_send({100, 100}));
  for (LayerWork& w : quota.layers[0][0]) {
    w.forward_gemm_rows = {400};
    w.again_rows = {20, 20};
    w.again_gemm_rows = {50};
    w.cached_pairs = 150;
  }
  StepWork keep = quota;
  StepWork recompute = quota;
  for (std::size_t r = 0; r < 2; ++r) {
    keep.layers[0][0][r].again_rows = keep.layers[0][0][r].again_gemm_rows = {};
    keep.layers[0][0][r].cached_pairs = 0;
    recompute.layers[0][0][r] = keep.layers[0][0][r];
    recompute.layers[0][0][r].recompute = true;
  }
  EXPECT_DOUBLE_EQ(price(quota, flops_only()).backward, (200 * 12 + 50 * 4) * 32 / 1e9);
  EXPECT_NEAR((price(quota, link_only(0)).backward - price(keep, link_only(0)).backward) * 1e6,
              20 * 16, 1e-6);
  // Cached in the forward pass: x, g and u copied.
  EXPECT_NEAR((price(quota, memory_only()).forward - price(keep, memory_only()).forward) * 1e9,
              2 * 150 * (16 + 2 * 8), 1e-6);
  // Backward: rows of x gathered and spread for 50 pairs, not collected for them.
  const double weights = 2 * 32 * 2 + 50 * (16 + 2 * 8);
  EXPECT_NEAR((price(quota, memory_only()).backward - price(keep, memory_only()).backward) * 1e9,
              2 * 40 * 16 + 2 * 50 * 16 - 2 * 50 * (16 + 2 * 8) + weights, 1e-6);
  // Everything computed again: as with recompute, but for what was collected of no pair.
  for (LayerWork& w : quota.layers[0][0]) {
    w.again_rows = {100, 100};
    w.again_gemm_rows = {200};
    w.cached_pairs = 0;
  }
  for (const Profile& p : {flops_only(), memory_only(), link_only(0)}) {
    EXPECT_NEAR(price(quota, p).backward, price(recompute, p).backward, 1e-12);
  }
}

}  // namespace
}  // namespace lrmoe::cost
