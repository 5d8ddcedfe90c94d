// What a replay says of memory, chunks and the cache.
#include "lrmoe/replay/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/layer.h"
#include "lrmoe/replay/memory.h"
#include "lrmoe/replay/report.h"
#include "tests/error_message.h"
#include "tests/replay/helpers.h"

namespace lrmoe::replay {
namespace {

TEST(Replay, AFractionalScaleIsExact) {
  const trace::Trace trace = random_trace(1, 1, 512, 8, 2);
  Options o = options(4, {entry("lrmoe")});
  const plan::MemoryTerms one = replay(trace, o).results[0].layers[0].memory;
  for (const double scale : {0.1, 1.24, 1.26, 31.88}) {
    o.clock.scale = scale;
    const plan::MemoryTerms more = replay(trace, o).results[0].layers[0].memory;
    EXPECT_EQ(more.weights, one.weights);
    for (const auto term : {&plan::MemoryTerms::activations, &plan::MemoryTerms::buffers,
                            &plan::MemoryTerms::workspace}) {
      EXPECT_NEAR(static_cast<double>(more.*term), scale * static_cast<double>(one.*term), 1);
    }
  }
}

TEST(Replay, InABudgetItSaysWhatThePlansDid) {
  const trace::Trace trace = random_trace(1, 2, 4096, 16, 4);
  Options o = options(
      4, {entry("fixed"), entry("fixed", 0.25, plan::Activations::recompute), entry("lrmoe")});
  o.strategies[1].label = "fixed:activations=recompute";
  o.placing = Placing::same_step;
  o.layers_in_flight = 2;
  o.clock.scale = 64;
  const Report free = replay(trace, o);
  EXPECT_EQ(free.results[2].activations, plan::Activations::keep);
  EXPECT_EQ(free.results[2].slots, 6);
  o.budget = free.results[2].memory.total() / 2;
  const Report report = replay(trace, o);
  const Result& tight = report.results[2];
  EXPECT_EQ(tight.activations, plan::Activations::recompute);
  EXPECT_EQ(find_result(report, "fixed", &tight), tight.chunks == 1 ? &report.results[1] : nullptr);
  int most = 0;
  for (const LayerResult& layer : tight.layers) {
    const std::int64_t expert = std::int64_t{3} * 2048 * 768 * 2;
    most = std::max(most, static_cast<int>(layer.memory.weights / expert));
    ASSERT_EQ(layer.notes.size(), 1U);
    EXPECT_NE(layer.notes[0].find("computed again"), std::string::npos);
  }
  EXPECT_EQ(tight.slots, most);
  const auto json = to_json(report)["results"][2];
  EXPECT_EQ(json["activations"], "recompute");
  EXPECT_EQ(json["slots"], most);
  EXPECT_EQ(json["chunks"], tight.chunks);
  // So little that replicas go too: said in the same note.
  o.clock.scale = 1;
  Options four = o;
  four.budget = 0;
  four.strategies = {entry("lrmoe", 0.25, plan::Activations::recompute)};
  four.slots = 4;
  o.budget = replay(trace, four).results[0].memory.total() / 100 * 101;
  const Result least = replay(trace, o).results[2];
  EXPECT_EQ(least.slots, 4);
  EXPECT_NE(least.layers[0].notes[0].find(": 4 of 6 slots a rank, "), std::string::npos)
      << least.layers[0].notes[0];
  // What runs in chunks anyway is not said to be given up.
  o.clock.scale = 64;
  o.budget = free.results[2].memory.total();
  o.chunks = 4;
  const Result chunked = replay(trace, o).results[2];
  EXPECT_EQ(chunked.chunks, 4);
  EXPECT_EQ(chunked.slots, 6);
  EXPECT_TRUE(chunked.layers[0].notes.empty());
}

TEST(Replay, LayersThatDifferAreMixedAndLikeNoOther) {
  trace::Info info = random_trace(1, 2, 8, 16, 4).info();
  const trace::Trace trace(
      info, {random_routing(400, 16, 4, 1, true), random_routing(4000, 16, 4, 2, true)});
  Options o = options(4, {entry("fixed"), entry("lrmoe")});
  o.layers_in_flight = 2;
  o.clock.scale = 64;
  o.placing = Placing::same_step;
  const auto bytes = [&](const LayerResult& layer) {
    return 2 * layer.memory.total();  // at least what a budget counts for two layers
  };
  const Report free = replay(trace, o);
  o.budget = bytes(free.results[1].layers[0]);
  ASSERT_LT(o.budget, free.results[1].layers[1].memory.total());
  const Report report = replay(trace, o);
  const Result& mixed = report.results[1];
  EXPECT_TRUE(mixed.layers[0].notes.empty());
  EXPECT_FALSE(mixed.layers[1].notes.empty());
  EXPECT_FALSE(mixed.activations.has_value());
  EXPECT_EQ(to_json(report)["results"][1]["activations"], "mixed");
  EXPECT_EQ(find_result(report, "fixed", &mixed), nullptr);
}

TEST(Replay, ChunksLowerTheMemoryAndCostTime) {
  const trace::Trace trace = random_trace(1, 1, 4096, 8, 2);
  Options o = options(4, {entry("lrmoe", 0.25, plan::Activations::recompute)});
  const Result one = replay(trace, o).results[0];
  o.chunks = 4;
  const Result four = replay(trace, o).results[0];
  EXPECT_EQ(four.chunks, 4);
  EXPECT_LT(four.memory.buffers + four.memory.activations,
            one.memory.buffers + one.memory.activations);
  EXPECT_GT(four.total.seconds.total(), one.total.seconds.total());
  EXPECT_EQ(four.layers[0].forward_load, one.layers[0].forward_load);
}

/// One rank and mode top, so that it is known which pairs are kept: the cache has each
/// expert's pairs of the largest gates, the backward pass wants those of the largest
/// scores.
TEST(Replay, QuotaCountsThePairsThatItsCacheMisses) {
  const trace::Trace trace = random_trace(1, 1, 400, 16, 4);
  const Sources sources = split_sources(trace.read(0, 0), 16, 1, 0);
  Entry e = entry("lrmoe", 0.3, plan::Activations::quota);
  e.options.lrmoe.mode = plan::SelectMode::top;
  const auto strategy = plan::make_strategy(e.options);
  LayerSettings settings;
  settings.cluster = {1, 16, 16, 4, 0};
  settings.options = e.options.lrmoe;
  LayerState state{strategy->initial(settings.cluster), plan::ScoreCurves(16)};
  plan::ScoreHistogram histogram(16);
  const LayerRun run = run_layer(*strategy, state, sources, settings, histogram);
  const Source& source = sources.ranks[0];
  std::int64_t missed = 0, kept = 0;
  std::set<std::size_t> rows;
  for (int expert = 0; expert < 16; ++expert) {
    std::vector<std::size_t> pairs;
    for (std::size_t i = 0; i < source.experts.size(); ++i) {
      if (source.experts[i] == expert) {
        pairs.push_back(i);
      }
    }
    const auto quota = run.plan.quota.at(0, expert);
    const auto largest = [&](const std::vector<float>& by) {
      std::vector<std::size_t> order = pairs;
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return by[a] > by[b]; });
      return std::set<std::size_t>(order.begin(), order.begin() + quota);
    };
    const std::set<std::size_t> cached = largest(source.gates);
    std::int64_t again = 0;
    for (const std::size_t pair : largest(source.scores)) {
      if (!cached.contains(pair)) {
        ++again;
        rows.insert(pair / 4);
      }
    }
    const auto row = run.plan.placement.row(0);
    const auto slot =
        static_cast<std::size_t>(std::find(row.begin(), row.end(), expert) - row.begin());
    EXPECT_EQ(run.work[0].again_gemm_rows[slot], again) << expert;
    missed += again;
    kept += quota;
  }
  EXPECT_EQ(run.work[0].cached_pairs, kept);
  EXPECT_EQ(run.work[0].again_rows[0], static_cast<std::int32_t>(rows.size()));
  EXPECT_FALSE(run.work[0].recompute);
  EXPECT_GT(missed, kept / 10);
  EXPECT_LT(missed, kept);
}

TEST(Replay, QuotaIsPricedBetweenKeepingAndComputingAgain) {
  for (const bool scores : {true, false}) {
    const trace::Trace trace = random_trace(1, 2, 2000, 16, 4, scores);
    Options o = options(4, {entry("lrmoe", 0.3, plan::Activations::quota),
                            entry("lrmoe", 0.3, plan::Activations::recompute),
                            entry("lrmoe", 1, plan::Activations::quota), entry("lrmoe", 1)});
    o.clock.scale = 64;
    const Report report = replay(trace, o);
    const auto& quota = report.results[0].total;
    const auto& recompute = report.results[1].total;
    EXPECT_LT(quota.seconds.backward, 0.99 * recompute.seconds.backward);
    EXPECT_LT(quota.bytes.backward, recompute.bytes.backward);
    EXPECT_EQ(report.results[0].layers[0].forward_load, report.results[1].layers[0].forward_load);
    // All pairs kept: nothing is cached or computed again.
    EXPECT_EQ(report.results[2].total.seconds.total(), report.results[3].total.seconds.total());
    EXPECT_EQ(to_json(report)["results"][0]["activations"], "quota");
  }
  // Counts over four ranks.
  const trace::Trace trace = random_trace(1, 1, 800, 16, 4);
  const Sources sources = split_sources(trace.read(0, 0), 16, 4, 0);
  const Entry e = entry("lrmoe", 0.3, plan::Activations::quota);
  const auto strategy = plan::make_strategy(e.options);
  LayerSettings settings;
  settings.cluster = {4, 16, 6, 4, 0};
  settings.options = e.options.lrmoe;
  const LayerState state{strategy->initial(settings.cluster), plan::ScoreCurves(16)};
  plan::ScoreHistogram histogram(16);
  const LayerRun run = run_layer(*strategy, state, sources, settings, histogram);
  std::int64_t again = 0, kept = 0, arrived = 0;
  const auto backward = plan::rank_loads(run.plan.backward, 4);
  for (std::size_t r = 0; r < 4; ++r) {
    const cost::LayerWork& work = run.work[r];
    EXPECT_EQ(sum(work.backward_gemm_rows), backward[r]);
    std::int64_t pairs = 0;
    for (std::size_t to = 0; to < 4; ++to) {
      EXPECT_LE(work.again_rows[to], work.backward_rows[to]);
      pairs += run.work[to].backward_pairs[r];
    }
    EXPECT_EQ(pairs, backward[r]);
    for (std::size_t i = 0; i < work.again_gemm_rows.size(); ++i) {
      EXPECT_LE(work.again_gemm_rows[i], work.backward_gemm_rows[i]);
    }
    EXPECT_LE(work.cached_pairs, backward[r]);
    EXPECT_EQ(work.statistics_bytes,
              work.scored_pairs * (1 + 4 * plan::statistics_of(e.options.lrmoe)));
    again += sum(work.again_gemm_rows);
    kept += backward[r];
    arrived += sum(work.again_rows);
  }
  EXPECT_GT(again, 0);
  EXPECT_LT(again, kept);
  EXPECT_LE(arrived, again);
}

}  // namespace
}  // namespace lrmoe::replay
