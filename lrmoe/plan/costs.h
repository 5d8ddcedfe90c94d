// What work and traffic cost, as far as plans depend on it: a few numbers from a
// hardware profile and a model's shape (docs/clock.md). All zero: not known, and
// nothing is weighed.
#pragma once

#include "lrmoe/cost/profile.h"
#include "lrmoe/cost/shape.h"

namespace lrmoe::plan {

/// Seconds on one rank. A pair is one (token, expert); a row is a token's d
/// elements on its way to another rank, one way.
struct PlanCosts {
  double forward_pair = 0;  // GEMMs of a pair, at the efficiency of large batches
  double backward_pair = 0;
  double recompute_pair = 0;  // more per pair where g and u are computed again
  double intra_row = 0;       // a row to a rank in the same node
  double inter_row = 0;       // a row to another node
  double backward_least = 0;  // of a backward pass without pairs: latencies, launches
  /// An expert's weights from another node (within, where all are in one).
  double fetch_instance = 0;
  bool known() const { return forward_pair > 0; }
  bool operator==(const PlanCosts&) const = default;
};

/// `scale`: tokens that each counted token stands for. `ranks_per_node`: 0 for all in one;
/// with no more `ranks` than that they are in one too.
PlanCosts plan_costs(const cost::Profile& profile, const cost::Shape& shape, double scale,
                     int ranks, int ranks_per_node);

}  // namespace lrmoe::plan
