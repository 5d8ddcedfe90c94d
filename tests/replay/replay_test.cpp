// Replays against counts made anew, pair by pair.
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

struct Case {
  std::string strategy;
  double ratio;
  plan::Activations activations;
};

TEST(Replay, WorkIsWhatThePlanSaysAndATokenGoesOnceToARank) {
  const trace::Trace trace = random_trace(1, 1, 500, 16, 4);
  const Sources sources = split_sources(trace.read(0, 0), 16, 4, 0);
  EXPECT_EQ(plan::total_pairs(sources.demand), 500 * 4);
  for (const Case& c :
       {Case{"fixed", 1, plan::Activations::keep}, Case{"symi", 1, plan::Activations::keep},
        Case{"lrmoe", 1, plan::Activations::keep}, Case{"lrmoe", 0.3, plan::Activations::keep},
        Case{"lrmoe", 0.3, plan::Activations::recompute}}) {
    const Entry e = entry(c.strategy, c.ratio, c.activations);
    const auto strategy = plan::make_strategy(e.options);
    LayerSettings settings;
    settings.cluster = {4, 16, strategy->owns_experts() ? 4 : 6, 4, 0};
    settings.options = e.options.lrmoe;
    settings.draw = 12345;
    LayerState state{strategy->initial(settings.cluster), plan::ScoreCurves(16)};
    state.placement =
        strategy->place(settings.cluster, sources.demand, state.placement, &state.curves);
    plan::ScoreHistogram histogram(16);
    const LayerRun run = run_layer(*strategy, state, sources, settings, histogram);
    plan::check_plan(run.plan);
    const auto forward = plan::rank_loads(run.plan.forward, 4);
    const auto backward = plan::rank_loads(run.plan.backward, 4);
    for (int r = 0; r < 4; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const cost::LayerWork& work = run.work[i];
      EXPECT_EQ(sum(work.forward_gemm_rows), forward[i]) << c.strategy;
      EXPECT_EQ(sum(work.backward_gemm_rows), backward[i]) << c.strategy;
      std::int64_t forward_arrived = 0, backward_arrived = 0;
      for (const cost::LayerWork& other : run.work) {
        forward_arrived += other.forward_pairs[i];
        backward_arrived += other.backward_pairs[i];
      }
      EXPECT_EQ(forward_arrived, forward[i]) << c.strategy;
      EXPECT_EQ(backward_arrived, backward[i]) << c.strategy;

      // Rows: this source's pairs of each expert in order of token fill its routes.
      std::vector<std::set<std::int64_t>> rows(4);
      std::map<int, std::int64_t> used;
      for (const plan::Route& route : run.plan.forward) {
        if (route.source != r) {
          continue;
        }
        std::int64_t skip = used[route.expert];
        std::int64_t left = route.pairs;
        const Source& source = sources.ranks[i];
        for (std::size_t p = 0; p < source.experts.size() && left > 0; ++p) {
          if (source.experts[p] != route.expert) {
            continue;
          }
          if (skip > 0) {
            --skip;
            continue;
          }
          rows[static_cast<std::size_t>(route.rank)].insert(static_cast<std::int64_t>(p) / 4);
          --left;
        }
        used[route.expert] += route.pairs;
      }
      for (std::size_t to = 0; to < 4; ++to) {
        EXPECT_EQ(work.forward_rows[to], static_cast<std::int32_t>(rows[to].size()));
        EXPECT_LE(work.backward_rows[to], work.backward_pairs[to]);
        EXPECT_LE(work.backward_rows[to], work.tokens);
      }
      EXPECT_EQ(work.recompute, c.activations == plan::Activations::recompute);
      EXPECT_EQ(work.scored_pairs > 0, c.ratio < 1) << c.strategy;
    }
  }
}

TEST(Replay, LoadsAreConservedAndBalanced) {
  const trace::Trace trace = random_trace(3, 2, 600, 16, 4);
  Options o = options(4, {entry("fixed"), entry("symi"), entry("lrmoe", 1), entry("lrmoe")});
  o.clock.scale = 64;  // so that computing outweighs latency
  const Report report = replay(trace, o);
  ASSERT_EQ(report.results.size(), 4u);
  for (const Result& r : report.results) {
    ASSERT_EQ(r.layers.size(), 6u);
    EXPECT_EQ(r.routed, 6 * 600 * 4);
    for (const LayerResult& l : r.layers) {
      EXPECT_EQ(std::accumulate(l.forward_load.begin(), l.forward_load.end(), std::int64_t{0}),
                l.routed - l.dropped);
      EXPECT_EQ(std::accumulate(l.backward_load.begin(), l.backward_load.end(), std::int64_t{0}),
                l.kept);
      EXPECT_GT(l.cost.seconds.total(), 0);
    }
    EXPECT_GE(r.imbalance_forward, 1);
    EXPECT_GT(subtotal(r.memory), 0);
  }
  const auto& fixed = report.results[0];
  const auto& all = report.results[2];
  const auto& part = report.results[3];
  EXPECT_LT(all.imbalance_forward, fixed.imbalance_forward);
  EXPECT_EQ(all.kept, all.routed);
  EXPECT_NEAR(static_cast<double>(part.kept) / static_cast<double>(part.routed), 0.25, 0.001);
  EXPECT_GT(part.added_variance, 0);
  EXPECT_LT(part.total.seconds.backward, all.total.seconds.backward);
  EXPECT_EQ(fixed.total.bytes.weights, 0);
  EXPECT_GT(all.total.bytes.weights, 0);
}

TEST(Replay, TheFirstStepOfNextStepRunsOnTheInitialPlacement) {
  const trace::Trace trace = random_trace(2, 1, 400, 16, 4);
  Options o = options(4, {entry("lrmoe", 1)});
  const Report next = replay(trace, o);
  o.placing = Placing::same_step;
  const Report same = replay(trace, o);
  const auto strategy = plan::make_strategy(o.strategies[0].options);
  const plan::Cluster cluster{4, 16, 6, 4, 8};
  const Sources sources = split_sources(trace.read(0, 0), 16, 4, 0);
  const plan::Plan plan = strategy->route({cluster, sources.demand, strategy->initial(cluster)});
  EXPECT_EQ(next.results[0].layers[0].forward_load, plan::rank_loads(plan.forward, 4));
  EXPECT_LE(plan::imbalance(same.results[0].layers[0].forward_load),
            plan::imbalance(next.results[0].layers[0].forward_load));
}

TEST(Replay, InStepTheWeightsComeBeforeTheGemms) {
  const trace::Trace trace = random_trace(3, 1, 400, 16, 4);
  Entry in_step = entry("lrmoe", 1);
  in_step.options.lrmoe.placing = plan::Placing::in_step;
  Options o = options(4, {entry("lrmoe", 1), in_step});
  o.clock.scale = 65536;  // so much work that replicas are worth their fetch
  const Report report = replay(trace, o);
  const Result& next = report.results[0];
  const Result& own = report.results[1];
  // Every one of the 4 ranks gets 6 instances' weights, a quarter from each shard.
  const double instance = 3.0 * 2048 * 768 * 2;
  const double received = 6 * instance * 3 / 4;
  const cost::Link& link = o.clock.profile.intra;
  const double fetch = link.latency + received / link.bandwidth;
  plan::StrategyOptions costed = in_step.options;
  costed.costs = plan::plan_costs(o.clock.profile, o.clock.shape, o.clock.scale, 4, 8);
  const auto strategy = plan::make_strategy(costed);
  const plan::Cluster cluster{4, 16, 6, 4, 8};
  plan::Placement placement = strategy->initial(cluster);
  for (std::size_t s = 0; s < 3; ++s) {
    const LayerResult& layer = own.layers[s];
    const Sources sources = split_sources(trace.read(static_cast<int>(s), 0), 16, 4, 0);
    placement = strategy->place(cluster, sources.demand, placement);
    const plan::Plan plan = strategy->route({cluster, sources.demand, placement});
    EXPECT_EQ(layer.forward_load, plan::rank_loads(plan.forward, 4));
    EXPECT_NEAR(layer.cost.seconds.fetch, fetch, 1e-12);
    EXPECT_GT(layer.cost.seconds.forward, fetch);
    // As many weights as delivered after the update, only sooner.
    EXPECT_NEAR(layer.cost.bytes.weights, 2 * 4 * received, 1);
    EXPECT_EQ(layer.cost.bytes.weights, next.layers[s].cost.bytes.weights);
    EXPECT_NEAR(next.layers[s].cost.seconds.update - layer.cost.seconds.update, fetch, 1e-12);
    EXPECT_EQ(next.layers[s].cost.seconds.fetch, 0);
  }
  EXPECT_LE(own.imbalance_forward, next.imbalance_forward);
  // In chunks they come once.
  Options chunked = options(4, {in_step});
  chunked.clock.scale = o.clock.scale;
  chunked.chunks = 4;
  EXPECT_NEAR(replay(trace, chunked).results[0].total.seconds.fetch, 3 * fetch, 1e-12);
  // With little work there are no replicas: 4 instances a rank.
  const Result little = replay(trace, options(4, {in_step})).results[0];
  EXPECT_NEAR(little.layers[0].cost.bytes.weights, 2 * 4 * received * 4 / 6, 1);
}

TEST(Replay, SameInputsSameFigures) {
  const trace::Trace trace = random_trace(2, 2, 300, 8, 2);
  const Options o = options(4, {entry("lrmoe"), entry("symi")});
  const auto a = to_json(replay(trace, o)).dump();
  EXPECT_EQ(a, to_json(replay(trace, o)).dump());
}

TEST(Replay, TokensRepeatOrAreCutAndAScaleMultipliesMemory) {
  const trace::Routing routing = random_routing(10, 8, 2, 1, true);
  const trace::Routing more = with_tokens(routing, 25);
  ASSERT_EQ(more.ids.size(), 50u);
  EXPECT_EQ(more.ids[20], routing.ids[0]);
  EXPECT_EQ(more.scores[49], routing.scores[9]);
  const trace::Routing fewer = with_tokens(routing, 3);
  EXPECT_EQ(fewer.ids, std::vector<std::int32_t>(routing.ids.begin(), routing.ids.begin() + 6));

  // Of traces with sources every so many-th, so that no rank is left without.
  trace::Routing recorded = routing;
  recorded.sources = {0, 0, 0, 1, 1, 1, 2, 2, 3, 3};
  const trace::Routing half = with_tokens(recorded, 5);
  EXPECT_EQ(half.sources, std::vector<std::int32_t>({0, 0, 1, 2, 3}));
  EXPECT_EQ(half.ids[2], routing.ids[4]);
  EXPECT_EQ(half.scores[9], routing.scores[17]);
  EXPECT_EQ(with_tokens(recorded, 12).sources,
            std::vector<std::int32_t>({0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 0, 1}));

  const trace::Trace trace = random_trace(1, 1, 512, 8, 2);
  Options o = options(4, {entry("fixed")});
  const Report one = replay(trace, o);
  o.clock.scale = 8;
  const Report eight = replay(trace, o);
  const plan::MemoryTerms a = one.results[0].layers[0].memory;
  const plan::MemoryTerms b = eight.results[0].layers[0].memory;
  EXPECT_EQ(b.weights, a.weights);
  // Row counts are rounded up, and which moment is the peak may change.
  const auto passing = [](const plan::MemoryTerms& m) {
    return static_cast<double>(m.activations + m.buffers + m.workspace);
  };
  EXPECT_NEAR(passing(b) / passing(a), 8, 0.4);
  EXPECT_GT(eight.results[0].total.bytes.forward, 7 * one.results[0].total.bytes.forward);
  EXPECT_EQ(one.layers_in_flight, 48);
  o.layers_in_flight = 1;
  EXPECT_EQ(replay(trace, o).results[0].memory.activations, b.activations);
}

TEST(Replay, JsonHasTheFieldsOfItsFormat) {
  const trace::Trace trace = random_trace(2, 2, 300, 8, 2);
  const auto json = to_json(replay(trace, options(4, {entry("fixed"), entry("lrmoe")})));
  EXPECT_EQ(json["format"], "lrmoe-replay");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model"], "qwen3-30b-a3b");
  EXPECT_EQ(json["profile"], "h200-ib");
  EXPECT_EQ(json["ranks"], 4);
  for (const auto& result : json["results"]) {
    double seconds = 0;
    for (const auto& layer : result["layers"]) {
      EXPECT_EQ(layer["forward_load"].size(), 4u);
      EXPECT_EQ(layer["backward_load"].size(), 4u);
      for (const char* key : {"forward", "backward", "weights"}) {
        EXPECT_TRUE(layer["bytes"][key].is_number());
      }
      for (const char* key : {"forward", "backward", "update"}) {
        seconds += layer["seconds"][key].get<double>();
      }
      std::int64_t total = 0;
      for (const char* key : {"weights", "gradients", "activations", "buffers", "workspace"}) {
        total += layer["memory"][key].get<std::int64_t>();
      }
      EXPECT_EQ(layer["memory"]["total"], total);
    }
    EXPECT_NEAR(result["total"]["seconds"].get<double>(), seconds, 1e-9 * seconds);
    EXPECT_GT(result["total"]["memory_subtotal"].get<std::int64_t>(), 0);
  }
  EXPECT_EQ(json["results"][0]["total"]["against"]["fixed"]["seconds"], 1.0);
}

TEST(Replay, WhatCannotBeReplayedIsSaidInOneLine) {
  const trace::Trace trace = random_trace(1, 1, 100, 16, 4);
  Options o = options(2, {entry("lrmoe")});
  o.slots = 4;
  EXPECT_NE(testing::message_of<InputError>([&] { replay(trace, o); }).find("at least 8"),
            std::string::npos);
  o.slots = 0;
  o.strategies = {entry("simi")};
  EXPECT_NE(testing::message_of<InputError>([&] { replay(trace, o); }).find("symi"),
            std::string::npos);
  o.strategies = {entry("lrmoe")};
  o.strategies[0].options.lrmoe.shortlist = 0.5;
  o.strategies[0].options.lrmoe.shortlist_by = plan::ShortlistBy::output;
  EXPECT_NE(testing::message_of<InputError>([&] { replay(trace, o); }).find("outputs"),
            std::string::npos);
  o.strategies = {entry("lrmoe")};
  o.clock.profile = cost::find_profile("this-machine");
  EXPECT_NE(testing::message_of<InputError>([&] { replay(trace, o); }).find("this-machine"),
            std::string::npos);
  o.clock.profile = cost::find_profile("h200-ib");
  o.clock.shape.hidden = 0;
  EXPECT_NE(testing::message_of<InputError>([&] { replay(trace, o); }).find("--model"),
            std::string::npos);
}

TEST(Replay, AShortlistByGateKeepsOnlyListedPairs) {
  const trace::Trace trace = random_trace(1, 1, 400, 16, 4);
  Options o = options(4, {entry("lrmoe", 0.25)});
  o.strategies[0].options.lrmoe.shortlist = 0.5;
  const Report report = replay(trace, o);
  EXPECT_NEAR(static_cast<double>(report.results[0].kept) / (400 * 4), 0.25, 0.01);
}

}  // namespace
}  // namespace lrmoe::replay
