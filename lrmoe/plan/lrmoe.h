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

/// Turns a keep-all plan into one that keeps a part: quota, cells and backward
/// split. The plan stays as it is where the ratio is 1 or there are no pairs, and
/// where the guard (LrmoeOptions::variance_limit) finds the price too high.
/// Reads curves, draw and listed of `input`.
void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input);

}  // namespace lrmoe::plan
