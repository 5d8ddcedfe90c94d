// Passes "replicate" and "place": which experts get the spare slots, and where
// all instances stand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lrmoe/plan/flow.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// The expert of every instance: each expert once, in order, then the replicas in
/// the order in which they are given: one at a time to the expert with the largest
/// weight per instance, ties to the lowest (DeepSeek's EPLB, replicate_experts).
/// `instances` in all, fewer where every expert has `most` (>= 1) already.
std::vector<std::int32_t> greedy_replicas(std::span<const std::int64_t> weights,
                                          std::int64_t instances, std::int32_t most);

/// EPLB's balanced_packing: `instances` by falling weight (an expert's instances
/// share its weight), each to the least loaded rank with a free slot. With
/// `distinct` an expert stands on a rank once at most, if need be by moving
/// another expert out of the way.
Placement pack_balanced(std::span<const std::int64_t> weights,
                        std::span<const std::int32_t> instances, int ranks, int slots,
                        bool distinct);

/// A placement on which the weights can be split exactly evenly over the ranks,
/// with at most R - 1 replicas (after Walker's alias method, with S slots for
/// two): a rank takes whole experts of about the same weight, S - 1 at most, and
/// fills up with a part of the next larger one, whose rest goes on. None where
/// E > R (S - 1) + 1; slots that are not needed stay empty.
std::optional<Placement> pack_even(std::span<const std::int64_t> weights, int ranks, int slots);

/// What a placement costs: the fullest rank's work in both phases, each split at
/// its best. `forward` and `backward` [E] in the same unit of work.
std::int64_t placement_cost(std::span<const std::int64_t> forward,
                            std::span<const std::int64_t> backward, const Placement& placement);

/// The cheapest of the candidates (pack_even by forward work and by all work,
/// greedy replicas) and `present`, which stays when it is within 0.5% of the best.
Placement choose_placement(const Cluster& cluster, std::span<const std::int64_t> forward,
                           std::span<const std::int64_t> backward, const Placement& present);

}  // namespace lrmoe::plan
