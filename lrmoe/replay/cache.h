// Activation mode quota in a replay: which pairs the instances' caches hold.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/plan/options.h"
#include "lrmoe/plan/types.h"
#include "lrmoe/replay/sources.h"

namespace lrmoe::replay {

struct CachedPairs {
  std::vector<std::vector<std::int32_t>> home;  // [R][T * k] the rank that has it cached, or -1
  std::vector<std::int64_t> on_rank;            // [R] how many each rank has
};

/// Every instance caches as many of its forward pairs as its backward pass has, the
/// likeliest to be selected. The trainer ranks them by p |a| (lrmoe/moe/cache.h); a
/// trace has no a, so here p alone decides, equal ones in the order of their arrival.
/// Pairs that are not on the shortlist are never cached.
CachedPairs cache_likely(const plan::Plan& plan, const Sources& sources,
                         const plan::LrmoeOptions& options);

}  // namespace lrmoe::replay
