// The gradient of the gates when not every pair has a backward pass. For every
// token sum_k p_k dp_k = <delta, o> is known exactly, whatever was dropped.
#pragma once

#include <ATen/ATen.h>

#include "lrmoe/plan/options.h"

namespace lrmoe::moe {

/// dp [T, k] for all pairs. With b = <delta, o> / sum_k p_k over the routed pairs:
///  - centred: b + w (dp_k - b) for kept pairs, b for the others: unbiased, low variance;
///  - remainder: kept pairs exact; the others share <delta, o> - sum_kept p_k dp_k,
///    in proportion to p: biased, exact where one pair is missing;
///  - kept: w dp_k, 0 for the others: unbiased, noisy.
/// (`exact` needs y of every pair and does not come here.)
///   gates p, dp (kept pairs, 0 elsewhere), weight (1/pi; 0: not kept), routed
///   (1, or 0 where a capacity dropped the pair in the forward pass): [T, k];
///   delta_o = <delta, o>: [T].
at::Tensor gate_gradient(plan::RouterGradient mode, const at::Tensor& gates, const at::Tensor& dp,
                         const at::Tensor& weight, const at::Tensor& routed,
                         const at::Tensor& delta_o);

}  // namespace lrmoe::moe
