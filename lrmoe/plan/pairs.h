// A source's own pairs and a plan's counts: which pair goes to which rank, which
// cell of the selection it is in, where the kept ones go. Plain arrays, no torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// A source's pairs in source order: (destination, expert, token). A pair is named
/// t * k + j.
struct RoutedPairs {
  std::vector<std::int64_t> pair;      // [P]
  std::vector<std::int64_t> per_rank;  // [R] how many go to each rank
};

/// Assigns pairs to the instances of their experts as `split` says for this
/// source: an expert's pairs in the order given fill its routes in order of rank.
///   experts: [T * k] expert of each pair; expert_count for a pair that stays out.
/// Pairs beyond an expert's routes are dropped: the last ones. listed: [T * k] flags
/// of the pairs on the shortlist, or empty; every route then takes its share of
/// them (plan::listed_share), so that all ranks know how many it has.
RoutedPairs route_pairs(std::span<const std::int64_t> experts, int expert_count,
                        std::span<const Route> routes_of_source, int ranks,
                        std::span<const std::uint8_t> listed = {});

/// The routes of one source: a contiguous part of a sorted split.
std::span<const Route> routes_of(const Split& split, int source);

/// The cell of every pair of a source, [T * k] index into `cells` (those of the
/// source), -1 for pairs that were not routed or, where `listed` holds flags of the
/// pairs on the shortlist (the cells hold only these then), not listed.
std::vector<std::int32_t> cells_of_pairs(std::span<const Cell> cells, int expert_count,
                                         std::span<const std::int64_t> experts,
                                         const RoutedPairs& pairs,
                                         std::span<const std::uint8_t> listed = {});

/// Kept pairs that return to where their forward pass ran. weight: [T * k], 0: not kept.
RoutedPairs kept_in_place(const RoutedPairs& pairs, std::span<const float> weight);

/// The experts of the kept pairs, expert_count (it stays out) for the others: with the
/// backward split, route_pairs then spreads them over the instances.
std::vector<std::int64_t> kept_experts(std::span<const std::int64_t> experts, int expert_count,
                                       std::span<const float> weight);

/// Activation mode quota: assigns the kept pairs to the routes of this source. Where a pair was
/// cached, its own instance has it first; what is left fills the routes in order of rank.
///   experts: [T * k], expert_count for pairs that are not kept; home: [T * k] the rank
///   that has the pair cached, or -1.
RoutedPairs route_cached(std::span<const std::int64_t> experts, int expert_count,
                         std::span<const Route> routes_of_source, int ranks,
                         std::span<const std::int32_t> home);

}  // namespace lrmoe::plan
