// One layer and step of a strategy: plan, exact counts of pairs and rows, what the
// clock and the memory model make of them.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/cost/work.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/replay/sources.h"

namespace lrmoe::replay {

/// What a strategy carries from step to step in one layer, as the trainer does.
struct LayerState {
  plan::Placement placement;
  plan::ScoreCurves curves;
};

/// Everything that is known once the step ran.
struct LayerRun {
  plan::Plan plan;
  std::vector<cost::LayerWork> work;  // [R]
  double plan_seconds = 0;            // wall time of route
};

/// How a strategy runs a layer.
struct LayerSettings {
  plan::Cluster cluster;
  plan::LrmoeOptions options;  // of a strategy that selects; else its activations alone
  int chunks = 1;
  std::int64_t draw = 0;
};

/// The plan of a step on the placement in force, with the settings' activations and
/// chunks; `seconds`: wall time. InputError for a shortlist by output, which a trace
/// does not hold.
plan::Plan route_layer(const plan::Strategy& strategy, const LayerState& state,
                       const Sources& sources, const LayerSettings& settings, double& seconds);

/// Routes a step and counts what every rank sends and
/// computes, pair by pair, as the trainer's dispatch does. Adds the pairs' scores to
/// `histogram` where the plan selects.
LayerRun run_layer(const plan::Strategy& strategy, const LayerState& state, const Sources& sources,
                   const LayerSettings& settings, plan::ScoreHistogram& histogram);

/// The same counts for a plan that is already there.
std::vector<cost::LayerWork> count_work(const plan::Strategy& strategy, const plan::Plan& plan,
                                        const Sources& sources, const LayerSettings& settings);

/// The scores of all routed pairs into the curves of a strategy that selects, as if the
/// step before had been the same.
void learn_scores(const Sources& sources, const plan::Strategy& strategy,
                  plan::ScoreCurves& curves);

/// Flags of a rank's pairs on its shortlist by gate, [T * k]; empty where there is none.
std::vector<std::uint8_t> shortlist(const plan::LrmoeOptions& options, const Source& source);

}  // namespace lrmoe::replay
