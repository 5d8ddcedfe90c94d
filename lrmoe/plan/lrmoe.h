// LRMoE: every pair is computed forward, the backward pass keeps a quota of them,
// and both phases are split so that no rank waits for another.
#pragma once

#include <memory>

#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// The placement that balances both phases for this demand.
std::unique_ptr<const Strategy> make_lrmoe(const StrategyOptions& options);

/// SYMI's placement and even split, dropless, with LRMoE's quotas and selection.
std::unique_ptr<const Strategy> make_symi_sampled(const StrategyOptions& options);

}  // namespace lrmoe::plan
