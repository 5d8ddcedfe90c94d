// Pass "quota", targets: which ratio a ceiling on the backward time means.
#pragma once

#include <cstdint>

#include "lrmoe/plan/costs.h"
#include "lrmoe/plan/options.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// What one layer's backward pass takes with an even share of `ratio * pairs` kept
/// pairs on every rank: their GEMMs, and delta, dx (and x, where it comes again) of
/// the rows that they take, over the slower kind of link.
double backward_seconds(const PlanCosts& costs, const Cluster& cluster, std::int64_t pairs,
                        double ratio, Activations activations);

/// The largest ratio (at most 1, at least 1e-6) whose backward_seconds stay within
/// `seconds`, to 2^-20; the least where none does.
double ratio_for_time(const PlanCosts& costs, const Cluster& cluster, std::int64_t pairs,
                      double seconds, Activations activations);

}  // namespace lrmoe::plan
