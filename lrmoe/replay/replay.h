// Traces through strategies: step by step and layer by layer what each would do on a
// cluster: loads, bytes, modelled seconds, memory (docs/replay.md). No torch, no
// cluster, the same figures on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/cost/clock.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::replay {

/// On which step's demand a step's placement is planned: the one before, as in
/// training (the first runs on the strategy's initial placement), or the step's own.
/// Of a strategy whose placement is in-step (LrmoeOptions::placing) it is always the
/// step's own, and the weights are fetched before the GEMMs.
enum class Placing : std::uint8_t { next_step, same_step };

/// A strategy as it takes part. Activations (of options.lrmoe) and chunks hold for
/// every strategy: comparisons of memory want the same for both.
struct Entry {
  std::string label;
  plan::StrategyOptions options;
  int slots = 0;   // per rank; 0: those of Options; where experts never move always ceil(E / R)
  int chunks = 0;  // 0: those of Options
};

struct Options {
  int ranks = 1;
  int slots = 0;  // per rank; 0: ceil(E / R) + 2
  std::vector<Entry> strategies;
  cost::ClockOptions clock;  // profile, shape, scale, ranks per node
  std::int64_t tokens = 0;   // a step; 0: as traced; more than were traced: they repeat
  Placing placing = Placing::next_step;
  std::uint64_t seed = 1;  // of the selection
  int chunks = 1;
  std::int64_t budget = 0;   // bytes of a rank for the layers in flight; 0: none; for `lrmoe`
  int layers_in_flight = 0;  // whose memory the subtotal counts; 0: the shape's MoE layers
};

struct LayerResult {
  int layer = 0;
  int step = 0;
  std::vector<std::int64_t> forward_load, backward_load;  // [R] pairs
  std::int64_t routed = 0, kept = 0, dropped = 0;         // pairs
  double added_variance = 0;  // that selection added, by the scores, over sum S^2
  cost::LayerCost cost;
  plan::MemoryTerms memory;  // of the fullest rank
  double plan_seconds = 0;   // measured here, wall
  std::vector<std::string> notes;
};

struct Result {
  Entry entry;
  // What the plans ran with.
  int slots = 0;                                 // in use, on the rank and in the layer with most
  std::optional<plan::Activations> activations;  // none: layers differ
  int chunks = 1;                                // the most
  int least_chunks = 1;
  std::vector<LayerResult> layers;  // step by step
  // Of all steps and layers.
  cost::LayerCost total;
  double imbalance_forward = 1, imbalance_backward = 1;  // mean over layers of max / mean
  std::int64_t routed = 0, kept = 0, dropped = 0;
  double added_variance = 0;  // mean over layers
  /// The fullest rank with all layers in flight, by its subtotal (replay/memory.h); the
  /// largest of the steps.
  plan::MemoryTerms memory;
};

struct Report {
  Options options;
  trace::Info info;
  std::string trace;        // of the file
  bool scores = false;      // the trace has scores; else gates stand in
  std::int64_t tokens = 0;  // of a step, the largest, before the scale
  int layers_in_flight = 0;
  std::vector<Result> results;  // one per strategy
};

/// InputError where ranks, slots and experts do not fit, a strategy's settings make no
/// sense, or its figures need what a trace does not hold. A trace that `lrmoe train`
/// recorded from its first step on, with scores and one micro-batch a step, gives the
/// run's own plans at the run's ranks, slots, strategy and seed.
Report replay(const trace::Trace& trace, const Options& options);

}  // namespace lrmoe::replay
