// Passes "split forward" and "split backward": which instance computes how many
// of an expert's pairs, so that the fullest rank has as few as possible.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// For every expert the ranks that hold it, ascending, each once.
Instances instances_of(const Placement& placement, int experts);

struct MinMaxSplit {
  Loads loads;               // [E, R]
  std::int64_t largest = 0;  // load of the fullest rank
};

/// Exact: no split over these instances has a smaller `largest` (balance.h).
MinMaxSplit min_max_split(std::span<const std::int64_t> pairs, const Instances& instances,
                          int ranks);

/// The same for pairs [R, E] of the sources. Where there are nodes, of the optimal
/// splits one whose pairs cross them least (locality.h); else that pairs stay on
/// their rank is a preference only.
MinMaxSplit min_max_split(const Cluster& cluster, const Counts& pairs, const Instances& instances);

}  // namespace lrmoe::plan
