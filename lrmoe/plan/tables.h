// Sums and look-ups over the planner's tables.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// Pairs on each (expert, rank): [E, R].
using Loads = Table<std::int64_t>;

/// Sum over sources: pairs per expert, [E].
std::vector<std::int64_t> pairs_per_expert(const Counts& counts);
std::int64_t total_pairs(const Counts& counts);

/// For every expert the ranks that hold it, each once.
using Instances = std::vector<std::vector<std::int32_t>>;

/// For every expert the ranks that hold it, ascending; a rank appears once per
/// slot, so `symi`'s double instances are seen.
std::vector<std::vector<std::int32_t>> slots_of_experts(const Placement& placement, int experts);

/// [E, R]: slots of rank r that hold expert e.
Counts slots_per_rank(const Placement& placement, int experts);

/// Pairs that a split brings to each rank: [R].
std::vector<std::int64_t> rank_loads(const Split& split, int ranks);

/// [E, R] pairs of a split, over all sources.
Loads expert_loads(const Split& split, int experts, int ranks);

/// [R, E] pairs of a split, over all destinations.
Counts source_counts(const Split& split, int ranks, int experts);

/// Largest over mean rank load; 1 where there is no load at all.
double imbalance(const std::vector<std::int64_t>& loads);

/// The node of a rank.
int node_of(const Cluster& cluster, int rank);

/// Splits `amount` over `shares` in proportion, in whole units: floors first,
/// then one each to the largest remainders, ties to the lowest index. At most
/// shares[i] goes to i when amount <= sum of shares. No shares: all zero.
std::vector<std::int64_t> apportion(std::int64_t amount, const std::vector<std::int64_t>& shares);

/// The same on ranks with more slots, `slots` each: the further ones are empty.
Placement with_slots(const Placement& placement, int slots);

/// Slots of each rank that hold an expert, and those of the rank that has most.
std::vector<std::int32_t> used_slots(const Placement& placement);
int most_used_slots(const Placement& placement);

}  // namespace lrmoe::plan
