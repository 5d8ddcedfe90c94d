// Pass "place": the placement that stays even when demand drifts.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

struct RobustSettings {
  /// Percent that an expert's demand may change by; also tried: to the 4th. Where slots are
  /// short, a third more and that alone.
  int drift = 30;
  int variations = 48;  // changed demands that a candidate is tried on, at most
  /// Activation mode keep: the backward pass of a pair runs where its forward pass did,
  /// so that the forward split decides both phases (tied.h).
  bool tied = false;
};

/// A placement on which `forward` and `backward` [E] can both be split evenly over
/// the ranks, as far as there are slots, and on which variations of them can.
/// Several placements by hubs are tried, each by the exact split of both phases;
/// fewer where the cluster is large. Depends on the weights and not on the
/// experts' numbers. All zero counts as even.
Placement place_robust(const Cluster& cluster, std::span<const std::int64_t> forward,
                       std::span<const std::int64_t> backward, const RobustSettings& settings = {});

/// How uneven the placement is, the less the better, in 1/kMeanLoad of a rank's
/// mean: 32 times the fullest rank's excess in both phases, 4 times that of each
/// small variation of the weights, and that of each large one.
std::int64_t unevenness(const Placement& placement, std::span<const std::int64_t> forward,
                        std::span<const std::int64_t> backward, const RobustSettings& settings);

}  // namespace lrmoe::plan
