// The clock against sums done by hand, on profiles where one term counts at a time.
#include "lrmoe/cost/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/cost/kernels.h"
#include "tests/cost/helpers.h"

namespace lrmoe::cost {
namespace {

using namespace test;

TEST(Clock, OneRankIsASumOfFlops) {
  const Seconds s = price(step_of(ranks_that_send({100}, 2)), flops_only());
  EXPECT_DOUBLE_EQ(s.forward, 200 * 6 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(s.backward, 200 * 12 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(s.total(), 200 * 18 * 32 / 1e9);
  EXPECT_EQ(s.exchange, 0);
  EXPECT_EQ(s.update, 0);
}

TEST(Clock, OneRankIsASumOfBytes) {
  // 10 tokens, 20 pairs, a row of 16 bytes, n elements have 8.
  const Seconds s = price(step_of(ranks_that_send({10}, 2)), memory_only());
  const double gemm_forward = 3 * 32 * 2 + 20 * (2 * 16 + 3 * 8);
  EXPECT_NEAR(s.forward * 1e9,
              2 * 10 * 16 +                    // gather the rows
                  2 * 20 * 16 +                // rows to pairs
                  gemm_forward + 3 * 20 * 8 +  // GEMMs, activation
                  (20 + 10) * 16 +             // pairs to rows
                  (10 + 10) * 16,              // rows to tokens
              1e-6);
  const double gemm_backward = 9 * 32 * 2 + 20 * (4 * 16 + 6 * 8);
  EXPECT_NEAR(
      s.backward * 1e9,
      2 * 10 * 16 + 2 * 20 * 16 + gemm_backward + 6 * 20 * 8 + (20 + 10) * 16 + (10 + 10) * 16,
      1e-6);
}

TEST(Clock, LaunchesAreCounted) {
  Profile p = free_profile();
  p.launch = 1;
  const Seconds s = price(step_of(ranks_that_send({10}, 2)), p);
  EXPECT_DOUBLE_EQ(s.forward, 5 + 2);  // five passes over memory, two GEMMs
  EXPECT_DOUBLE_EQ(s.backward, 5 + 4);
}

TEST(Clock, TheFullestRankDecides) {
  // Rank 2 computes 4 * 300 pairs, the others far fewer.
  const Seconds s = price(step_of(ranks_that_send({10, 20, 300, 40})), flops_only());
  EXPECT_DOUBLE_EQ(s.forward, 1200 * 6 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(s.backward, 1200 * 12 * 32 / 1e9);
  // Waiting for it is no time on the wire.
  EXPECT_EQ(s.exchange, 0);
}

TEST(Clock, RanksWaitForEachOtherAtEveryLayer) {
  // Rank 0 is full in one layer, rank 1 in the other: the layers add up, though
  // no rank has more than 110 pairs in all.
  StepWork step;
  step.layers = {{ranks_that_send({50, 5})}, {ranks_that_send({5, 50})}};
  ClockOptions options{.profile = flops_only(), .shape = small_shape()};
  const StepCost cost = price_step(step, options);
  EXPECT_DOUBLE_EQ(cost.total.seconds.forward, 2 * 100 * 6 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(cost.layers[0].seconds.forward, 100 * 6 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(cost.layers[1].seconds.forward, 100 * 6 * 32 / 1e9);
}

TEST(Clock, MicroBatchesAddUp) {
  StepWork step;
  step.layers = {{ranks_that_send({50, 5}), ranks_that_send({7, 7})}};
  const Seconds s = price(step, flops_only());
  EXPECT_DOUBLE_EQ(s.forward, (100 + 14) * 6 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(s.backward, (100 + 14) * 12 * 32 / 1e9);
}

TEST(Clock, ExchangeIsTheLargerOfSentAndReceived) {
  // Each of three ranks sends 100 rows to rank 0 and 10 to the others. Rank 0
  // receives 200 rows of 16 bytes, and 8 bytes for each of their pairs.
  StepWork step = step_of(ranks_that_send({100, 10, 10}));
  step.optimizer = {{.experts = 0, .owned = true, .instances = {0, 0, 0}}};
  const Seconds s = price(step, link_only(0));
  const double counts = 2 * 4;             // two other ranks
  const double dispatch = 200 * (16 + 8);  // received by rank 0
  const double combine = 200 * 16;         // sent by rank 0
  EXPECT_NEAR(s.forward * 1e6, counts + dispatch + combine, 1e-6);
  EXPECT_DOUBLE_EQ(s.exchange, s.forward + s.backward);
  EXPECT_NEAR(s.backward * 1e6, 200 * (16 + 8) + 200 * (16 + 4), 1e-6);
}

TEST(Clock, DemandTablesTravel) {
  StepWork step = step_of(ranks_that_send({0, 0, 0}));
  step.optimizer = {{.experts = 1000, .owned = true, .instances = {0, 0, 0}}};
  EXPECT_NEAR(price(step, link_only(0)).forward * 1e6, 2 * (4000 + 4), 1e-6);
}

TEST(Clock, BytesBetweenNodesArePricedSlower) {
  const StepWork step = step_of(ranks_that_send({100, 100, 100, 100}));
  const double one_node = price(step, link_only(0)).total();
  const double two_nodes = price(step, link_only(2)).total();
  const double four_nodes = price(step, link_only(1)).total();
  // Two of the three other ranks are in the other node, at a tenth of the speed;
  // the links within the node are done long before.
  EXPECT_NEAR(two_nodes / one_node, 10.0 * 2 / 3, 1e-9);
  EXPECT_NEAR(four_nodes / one_node, 10.0, 1e-9);
  // The option overrides the profile.
  ClockOptions options{.profile = link_only(0), .shape = small_shape(), .ranks_per_node = 2};
  EXPECT_DOUBLE_EQ(price_step(step, options).total.seconds.total(), two_nodes);
}

TEST(Clock, LatencyIsPaidByEveryCollective) {
  Profile p = free_profile();
  p.intra.latency = 1;
  p.inter.latency = 100;
  const StepWork whole = step_of(ranks_that_send({10, 10}));
  EXPECT_DOUBLE_EQ(price(whole, p).forward, 4);   // demand, counts, dispatch, combine
  EXPECT_DOUBLE_EQ(price(whole, p).backward, 2);  // dispatch, return
  StepWork kept = whole;
  kept.layers[0][0][1].backward_pairs = {5, 10};
  EXPECT_DOUBLE_EQ(price(kept, p).backward, 3);  // and the row counts
  p.ranks_per_node = 1;
  EXPECT_DOUBLE_EQ(price(whole, p).forward, 400);
  EXPECT_EQ(price(step_of(ranks_that_send({10})), p).total(), 0);
}

TEST(Clock, RowsThatStayAtHomeAreNotSent) {
  std::vector<LayerWork> ranks = ranks_that_send({0, 0});
  for (std::size_t r = 0; r < 2; ++r) {
    ranks[r].forward_rows[r] = ranks[r].forward_pairs[r] = 1000;
    ranks[r].combine_rows[r] = ranks[r].backward_rows[r] = ranks[r].backward_pairs[r] = 1000;
  }
  ClockOptions options{.profile = link_only(0), .shape = small_shape()};
  const LayerCost cost = price_step(step_of(ranks), options).total;
  EXPECT_DOUBLE_EQ(cost.bytes.forward, 2 * (4 * small_shape().experts + 4));
  EXPECT_EQ(cost.bytes.backward, 0);
}

TEST(Clock, SentBytesAreSummedOverRanks) {
  ClockOptions options{.profile = link_only(0), .shape = small_shape()};
  const StepWork step = step_of(ranks_that_send({100, 10, 10}, 2));
  const SentBytes bytes = price_step(step, options).total.bytes;
  const double rows = 2 * (100 + 10 + 10);  // of all ranks to others
  EXPECT_DOUBLE_EQ(bytes.forward, 6 * (16 + 4) + rows * (16 + 2 * 8 + 16));
  EXPECT_DOUBLE_EQ(bytes.backward, rows * (16 + 2 * 8 + 16 + 2 * 4));
}

TEST(Clock, ScaleMultipliesTokens) {
  const StepWork step = step_of(ranks_that_send({100, 50}, 2));
  const StepWork tenfold = step_of(ranks_that_send({1000, 500}, 2));
  for (const Profile& p : {flops_only(), memory_only(), find_profile("h200-ib")}) {
    const Seconds scaled = price(step, p, 10);
    const Seconds larger = price(tenfold, p);
    EXPECT_NEAR(scaled.forward / larger.forward, 1, 1e-12);
    EXPECT_NEAR(scaled.backward / larger.backward, 1, 1e-12);
  }
}

TEST(Clock, ShapeMultipliesFlopsAndBytes) {
  const StepWork step = step_of(ranks_that_send({100, 50}, 2));
  const Shape own = small_shape();
  Shape large = own;
  large.hidden *= 3;
  large.width *= 5;
  EXPECT_NEAR(price(step, flops_only(), 1, large).total() / price(step, flops_only()).total(), 15,
              1e-9);
  // Only rows travel: they have d elements, the pairs' ids none.
  const double before = price(step, link_only(0)).total();
  Shape long_rows = own;
  long_rows.hidden += 1;
  const double rows = 4 * 100 * 2;  // four row exchanges, 100 rows received or sent, 2 bytes
  EXPECT_NEAR((price(step, link_only(0), 1, long_rows).total() - before) * 1e6, rows, 1e-6);
}

TEST(Clock, ExpertsWithFewRowsAreBoundByTheirWeights) {
  Profile p = flops_only();
  p.memory_bandwidth = 1e9;
  const Shape shape = find_shape("qwen3-30b-a3b", {});
  const std::int32_t one[] = {1};
  EXPECT_GE(gemm_seconds(Pass::forward, one, 1, p, shape), 3.0 * 2048 * 768 * 2 / 1e9);
  const std::int32_t spread[] = {1, 1, 1, 1};
  const std::int32_t together[] = {4};
  Profile h200 = find_profile("h200-ib");
  h200.launch = 0;
  EXPECT_GT(gemm_seconds(Pass::forward, spread, 1, h200, shape),
            3 * gemm_seconds(Pass::forward, together, 1, h200, shape));
  const std::int32_t none[] = {0, 0};
  EXPECT_EQ(gemm_seconds(Pass::forward, none, 1, p, shape), 0);
}

TEST(Clock, PlanningSelectionAndStatisticsAreCharged) {
  Profile p = memory_only();
  p.host_cell = 1e-3;
  std::vector<LayerWork> ranks = ranks_that_send({10, 10});
  const Seconds before = price(step_of(ranks), p);
  for (LayerWork& w : ranks) {
    w.plan_cells = 8;
    w.scored_pairs = 20;
    w.statistics_bytes = 160;
    w.plan_seconds = 3;
    w.select_seconds = 5;
  }
  const Seconds s = price(step_of(ranks), p);
  EXPECT_DOUBLE_EQ(s.plan, 8e-3);
  EXPECT_DOUBLE_EQ(s.select, 20 * 32 / 1e9);
  EXPECT_DOUBLE_EQ(s.statistics, 20 * 3 * 8 / 1e9);
  EXPECT_NEAR(s.forward, before.forward + s.plan + s.statistics, 1e-12);
  EXPECT_NEAR(s.backward, before.backward + s.select, 1e-12);

  ClockOptions options{.profile = p, .shape = small_shape(), .measured_host = true};
  const Seconds measured = price_step(step_of(ranks), options).total.seconds;
  EXPECT_DOUBLE_EQ(measured.plan, 3);
  EXPECT_DOUBLE_EQ(measured.select, 5);

  // Half of the statistics come from the other rank.
  const double wire = price(step_of(ranks), link_only(0)).forward -
                      price(step_of(ranks_that_send({10, 10})), link_only(0)).forward;
  EXPECT_NEAR(wire * 1e6, 80, 1e-6);
}

TEST(Clock, WeightsThatAreFetchedWithinTheStepComeBeforeTheExperts) {
  std::vector<LayerWork> ranks = ranks_that_send({1, 1});
  const Seconds before = price(step_of(ranks), link_only(0));
  ranks[0].fetched_instances = 1;
  ranks[1].fetched_instances = 3;
  ClockOptions options{.profile = link_only(0), .shape = small_shape()};
  const LayerCost cost = price_step(step_of(ranks), options).total;
  const double part = 96 * 2 / 2.0;  // bytes of one instance on one of two shards
  EXPECT_NEAR(cost.seconds.fetch * 1e6, 3 * part, 1e-6);
  EXPECT_NEAR(cost.seconds.forward, before.forward + cost.seconds.fetch, 1e-12);
  EXPECT_DOUBLE_EQ(cost.bytes.weights, 4 * part);
}

TEST(Clock, UpdateSendsInstancesToTheShardsAndBack) {
  StepWork step = step_of(ranks_that_send({1, 1}));
  step.optimizer = {{.experts = 4, .instances = {2, 3}, .next_instances = {3, 2}}};
  const double part = 96 * 2 / 2.0;  // bytes of one instance on one of two shards
  ClockOptions options{.profile = link_only(0), .shape = small_shape()};
  const LayerCost cost = price_step(step, options).total;
  // Each direction: the rank with three instances sends, or receives, three parts.
  EXPECT_NEAR(cost.seconds.weight_exchange * 1e6, 3 * part + 3 * part, 1e-6);
  EXPECT_DOUBLE_EQ(cost.seconds.update, cost.seconds.weight_exchange);
  EXPECT_DOUBLE_EQ(cost.bytes.weights, 5 * part + 5 * part);

  // AdamW moves 30 bytes an element (2 of them the new weight); two experts' worth a rank.
  const Seconds memory = price(step, memory_only());
  EXPECT_NEAR(memory.update * 1e9, 5 * part + 2 * 96 * 30, 1e-6);
}

TEST(Clock, ScoreHistogramsAreSummedOverTheRanks) {
  StepWork step = step_of(ranks_that_send({0, 0, 0, 0}));
  step.optimizer = {{4, true, {1, 1, 1, 1}}};
  const double without = price(step, link_only(0)).update;
  step.optimizer[0].score_bytes = 4000;
  const Seconds s = price(step, link_only(0));
  // Each rank sends a quarter to each of three others, twice, at 1 MB/s.
  EXPECT_DOUBLE_EQ(s.scores, 2 * 3 * 1000 / 1e6);
  EXPECT_DOUBLE_EQ(s.update - without, s.scores);
  EXPECT_DOUBLE_EQ(price(step, link_only(0), 16).scores, s.scores);  // scale: no more experts
  EXPECT_EQ(s.weight_exchange, 0);
}

TEST(Clock, OwnersSendNoWeights) {
  StepWork step = step_of(ranks_that_send({1, 1}));
  step.optimizer = {{.experts = 3, .owned = true, .instances = {1, 2}}};
  ClockOptions options{.profile = link_only(0), .shape = small_shape()};
  EXPECT_EQ(price_step(step, options).total.bytes.weights, 0);
  EXPECT_EQ(price_step(step, options).total.seconds.update, 0);
  EXPECT_NEAR(price(step, memory_only()).update * 1e9, 2 * 96 * 30, 1e-6);
}

TEST(Clock, ThisMachinePricesMeasuredSeconds) {
  std::vector<LayerWork> ranks = ranks_that_send({1, 1});
  ranks[0].forward_cpu_seconds = 1;
  ranks[0].backward_cpu_seconds = 2;
  ranks[1].forward_cpu_seconds = 4;
  ranks[1].backward_cpu_seconds = 1;
  Profile p = find_profile("this-machine");
  p.intra = {kInfinity, 0};
  StepWork step = step_of(ranks);
  step.optimizer = {{.experts = 2, .owned = true, .instances = {1, 1}, .cpu_seconds = {0.25, 0.5}}};
  Seconds s = price(step, p);
  EXPECT_DOUBLE_EQ(s.forward, 4);
  EXPECT_DOUBLE_EQ(s.backward, 2);
  EXPECT_DOUBLE_EQ(s.update, 0.5);
  EXPECT_EQ(s.plan + s.select + s.statistics, 0);

  // Wall seconds less the collectives' stand in where no CPU time was taken.
  for (LayerWork& w : ranks) {
    w.forward_cpu_seconds = w.backward_cpu_seconds = 0;
    w.forward_seconds = 3;
    w.backward_seconds = 5;
    w.exchange_seconds = 4;
  }
  s = price(step_of(ranks), p);
  EXPECT_DOUBLE_EQ(s.forward, 1.5);
  EXPECT_DOUBLE_EQ(s.backward, 2.5);
}

TEST(Clock, SpansAddUpOnRealProfiles) {
  for (const std::string& name : profile_names()) {
    StepWork step;
    step.layers = {{ranks_that_send({30, 5, 9, 1}, 2), ranks_that_send({1, 2, 3, 4}, 2)},
                   {ranks_that_send({9, 9, 9, 9}, 2), ranks_that_send({0, 0, 0, 7}, 2)}};
    step.optimizer.assign(
        2, {.experts = 4, .instances = {2, 2, 2, 2}, .next_instances = {2, 2, 2, 2}});
    ClockOptions options{.profile = find_profile(name), .shape = small_shape()};
    const StepCost cost = price_step(step, options);
    double sum = 0;
    for (const LayerCost& layer : cost.layers) {
      sum += layer.seconds.total();
      EXPECT_LE(layer.seconds.exchange, layer.seconds.forward + layer.seconds.backward + 1e-15);
    }
    EXPECT_NEAR(sum, cost.total.seconds.total(), 1e-12);
    EXPECT_GT(sum, 0) << name;
  }
}

TEST(Clock, WrongTablesAreInternalErrors) {
  std::vector<LayerWork> ranks = ranks_that_send({1, 1});
  ranks[1].combine_rows.pop_back();
  EXPECT_THROW(price(step_of(ranks), free_profile()), InternalError);
  EXPECT_THROW(price({}, free_profile()), InternalError);
  StepWork step = step_of(ranks_that_send({1, 1}));
  step.optimizer = {{.experts = 4, .instances = {2}, .next_instances = {3, 2}}};
  EXPECT_THROW(price(step, free_profile()), InternalError);
}

TEST(Clock, ByLayerTurnsRanksInsideOut) {
  std::vector<std::vector<LayerWork>> ranks(2, std::vector<LayerWork>(6));
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 6; ++i) {
      ranks[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)].tokens = 10 * i + r;
    }
  }
  const auto layers = by_layer(ranks, 3);
  ASSERT_EQ(layers.size(), 2u);
  ASSERT_EQ(layers[1].size(), 3u);
  EXPECT_EQ(layers[0][1][1].tokens, 11);
  EXPECT_EQ(layers[1][2][0].tokens, 50);
  ranks[1].pop_back();
  EXPECT_THROW(by_layer(ranks, 3), InternalError);
}

TEST(Clock, SettingsThatCannotGoTogether) {
  ClockOptions options{.profile = find_profile("h200-ib"), .shape = find_shape("glm-4.5-air", {})};
  EXPECT_NO_THROW(check_clock(options));
  options.scale = 0;
  EXPECT_THROW(check_clock(options), InputError);
  options.scale = 1;
  options.profile = find_profile("this-machine");
  EXPECT_THROW(check_clock(options), InputError);
  options.shape = small_shape();
  EXPECT_NO_THROW(check_clock(options));
  options.scale = 2;
  EXPECT_THROW(check_clock(options), InputError);
}

}  // namespace
}  // namespace lrmoe::cost
