// EPLB's way to replicate and place: greedy replicas, packed by falling weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace lrmoe::plan
