// Pass "place", what work and traffic cost: replicas near their sources, and
// whether weights that must move within the step are worth it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/costs.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// What a placement is judged by.
struct PlacementDemand {
  Cluster cluster;
  std::span<const std::int64_t> forward;   // [E] pairs
  std::span<const std::int64_t> backward;  // [E] kept pairs, fixed point
  const Counts* sources = nullptr;         // demand [R, E]
  Activations activations = Activations::keep;
};

/// Pairs whose source's node holds no instance of their expert: [R, E] demand.
std::int64_t far_pairs(const Cluster& cluster, const Counts& demand, const Placement& placement);

/// Seconds of a layer's forward and backward pass, as far as the placement decides
/// them: the fullest rank's GEMMs in either phase, split at its best, and the rows
/// of far_pairs between nodes, dispatch and combine, delta and dx, evenly over the
/// ranks, above what they take within a node.
double placement_seconds(const PlanCosts& costs, const PlacementDemand& demand,
                         const Placement& placement);

/// Swaps instances between nodes while placement_seconds falls. The same placement
/// where costs are not known, links are equally fast or all ranks are in one node.
Placement bring_near(const PlanCosts& costs, const PlacementDemand& demand, Placement placement);

/// In-step placement: `present` or one of the candidates, whichever takes least with the
/// fetching of weights: every instance's come before the GEMMs, so the rank with most
/// instances decides. Within 0.5% `present` stays; where costs are not known, the
/// fullest rank's load alone decides.
Placement place_in_step(const PlanCosts& costs, const PlacementDemand& demand,
                        const Placement& present, std::span<const Placement> candidates);

}  // namespace lrmoe::plan
