// Pass "place", where hubs leave a rank too full: ranks filled up one by one.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/hubs.h"

namespace lrmoe::plan {

/// Every rank gets as many whole experts as it has to, together as near below the mean
/// as they come, and a part of the heaviest that is left to fill it up (Walker's alias
/// tables, 1977, with several whole items each): even in a weight with one slot more
/// than ceil(E / R). `weights` [E] in 1/kMeanLoad of a rank's mean; `by` [E]: the weight
/// that is evened out. Further slots as in place_hubs. An empty placement where slots are
/// too few.
Placement place_fill(const Cluster& cluster, std::span<const PhaseLoad> weights,
                     std::span<const std::int64_t> by);

}  // namespace lrmoe::plan
