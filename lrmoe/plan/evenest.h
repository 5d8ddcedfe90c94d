// Pass "replicate, place" with no more slots than do good.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/robust.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// The fullest rank of the two phases, each split at its best, in 1/kEven of its mean;
/// 0 where there is no load.
inline constexpr std::int64_t kEven = std::int64_t{1} << 20;
std::int64_t fullest_share(const Placement& placement, std::span<const std::int64_t> forward,
                           std::span<const std::int64_t> backward);

/// place_robust; where that leaves a rank more than a quarter of a percent above the
/// mean, with fewer slots too (the others stay empty), and of all of them the first that
/// none beats by a quarter of a percent. The search for hubs is no exhaustive one, so
/// more slots may lead it astray; so they never make the fullest rank fuller by more
/// than that.
Placement place_evenest(const Cluster& cluster, std::span<const std::int64_t> forward,
                        std::span<const std::int64_t> backward,
                        const RobustSettings& settings = {});

}  // namespace lrmoe::plan
