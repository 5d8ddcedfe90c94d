// From a keep-all plan to one whose backward pass keeps a part of the pairs.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/options.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// The quota's settings in fixed point; `pairs` [E] of this step say which ratio a
/// ceiling on the added variance means.
QuotaSettings quota_settings(const LrmoeOptions& options, const ScoreCurves* curves,
                             std::span<const std::int64_t> pairs);

/// Turns a keep-all plan into one that keeps a part: quota, cells and backward
/// split. The plan stays as it is where the ratio is 1 or there are no pairs, and
/// where the guard (LrmoeOptions::variance_limit) finds the price too high.
/// Reads curves, draw and listed of `input`.
void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input);

}  // namespace lrmoe::plan
