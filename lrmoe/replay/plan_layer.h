// One layer of a trace planned on its own: `lrmoe plan`.
#pragma once

#include <cstdint>
#include <string>

#include "lrmoe/cost/shape.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::replay {

struct PlanOptions {
  int ranks = 1;
  int slots = 0;  // per rank; 0: ceil(E / R) + 2
  int ranks_per_node = 0;
  plan::StrategyOptions strategy;
  int chunks = 1;
  int layer = 0;
  int step = 0;
  int placement_step = -1;  // whose demand the placement is planned on; -1: the step's own
  std::uint64_t seed = 1;
  cost::Shape shape;  // of the memory terms; hidden = 0: none are given
  double scale = 1;   // tokens that each traced token stands for, in the memory terms
};

struct PlannedLayer {
  plan::Plan plan;           // check_plan holds
  double place_seconds = 0;  // wall time
  double route_seconds = 0;
};

/// InputError for a layer or step that the trace does not have, a cluster that cannot
/// hold the experts, settings that make no sense.
PlannedLayer plan_layer(const trace::Trace& trace, const PlanOptions& options);

/// A readable summary.
std::string to_text(const PlannedLayer& planned, const trace::Trace& trace,
                    const PlanOptions& options);

}  // namespace lrmoe::replay
