// Static expert parallelism: the baseline that every other strategy is measured by.
#pragma once

#include <memory>

#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// Expert e in the next free slot of rank floor(e R / E).
Placement fixed_placement(const Cluster& cluster);

/// `fixed`: no drops. `fixed-capacity`: an expert computes at most
/// floor(cf * pairs / E) pairs, the rest are dropped.
std::unique_ptr<const Strategy> make_fixed(const StrategyOptions& options);
std::unique_ptr<const Strategy> make_fixed_capacity(const StrategyOptions& options);

}  // namespace lrmoe::plan
