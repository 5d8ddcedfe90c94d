// From a keep-all plan to one whose backward pass keeps a part of the pairs.
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/plan/options.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// The quota's settings in fixed point; `pairs` [E] of this step say which ratio a
/// ceiling on the added variance means.
QuotaSettings quota_settings(const LrmoeOptions& options, const PriceTable& prices,
                             std::span<const std::int64_t> pairs);
QuotaSettings quota_settings(const LrmoeOptions& options, const ScoreCurves* curves,
                             std::span<const std::int64_t> pairs);

/// Pairs on the sources' shortlists [R, E] where only the demand is known: of every
/// source as many as its shortlist takes, spread like its demand.
Counts assumed_shortlist(const LrmoeOptions& options, const Counts& demand);

/// Activation mode keep: of the outline's even forward splits one whose kept pairs, at
/// one price for all experts, are even as well (exchange.h). Before routes are derived.
void even_out_kept(const RouteInput& input, const LrmoeOptions& options, RouteScratch& scratch);

/// Turns a keep-all plan into one that keeps a part: quota, cells and backward
/// split (outline_backward says when it stays as it is). Index, prefixes and
/// forward loads of the plan stand in the outline. Reads curves, draw and listed of
/// `input`.
void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input,
               RouteScratch& scratch);

}  // namespace lrmoe::plan
