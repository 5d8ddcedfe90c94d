// Which source sends how many pairs to which instance, once the load of every
// instance is settled. Shared by all strategies.
#pragma once

#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// `pairs` [R, E] of each source, `loads` [E, R] of each instance, equal in sum
/// for every expert. A source's pairs stay on its own rank first, then on its
/// node, then go anywhere; within each of the three in rank order, so that few
/// messages are cut in two. O(E * R).
Split assign_sources(const Cluster& cluster, const Counts& pairs, const Loads& loads);

}  // namespace lrmoe::plan
