// Activation mode quota: a cache as large as the backward pass that the plan gives
// an instance. It holds the pairs that the forward pass thinks likeliest to be
// selected, by p |a|; a bit per pair tells its source. Selected pairs that are
// cached fill the backward split at the instance where they are; the others are
// recomputed where the plan has room.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/moe/dispatch.h"
#include "lrmoe/moe/expert_slots.h"
#include "lrmoe/plan/pairs.h"
#include "lrmoe/plan/rank_plan.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::moe {

/// Pairs of this rank's instances over the chunks of a pass.
class CacheRoom {
 public:
  CacheRoom() = default;
  CacheRoom(const plan::RankPlan& plan, const ExpertSlots& slots);

  /// Which of a chunk's pairs are cached: [P'] bool. Every instance has room for as
  /// many pairs as its backward pass has, shared by the chunks in proportion to
  /// their pairs. likely: [P'], larger is better, below 0: never.
  at::Tensor choose(const at::Tensor& likely, std::span<const Group> groups);

 private:
  struct Instance {
    std::int64_t forward = 0, backward = 0;  // pairs of the whole pass
    std::int64_t seen = 0;                   // in earlier chunks
  };
  std::vector<Instance> instances_;  // by slot
};

using plan::route_cached;

}  // namespace lrmoe::moe
