// SYMI (arXiv 2504.19925): replicas of an expert in proportion to its popularity
// of the step before, one capacity for all slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// Algorithm 1: slots for each expert, at least one each and `slots` in sum
/// (slots >= experts). goal = popularity / sum * slots, count = floor(max(goal, 1));
/// then the count farthest above its goal (of those above 1) is lowered, or the
/// one farthest below raised, until the sum is right; ties to the lowest expert.
/// Goals are compared as fractions. No popularity at all counts as an even one.
std::vector<std::int32_t> symi_counts(std::span<const std::int64_t> popularity, std::int64_t slots);

/// The counts laid over the R * S slots one expert after the other.
Placement symi_placement(const Cluster& cluster, std::span<const std::int64_t> popularity);

/// Slot capacity floor(cf * pairs / (R * S)); the overflow is dropped.
std::unique_ptr<const Strategy> make_symi(const StrategyOptions& options);

}  // namespace lrmoe::plan
