// The router: scores, top-k and gates, in fp32 (fp64 for fp64 weights); logits
// too, or in the model's dtype where the family does so.
#pragma once

#include <ATen/ATen.h>

#include "lrmoe/model/config.h"

namespace lrmoe::moe {

struct Routing {
  at::Tensor gates;  // [T, k] fp32, differentiable through any router kind
  at::Tensor ids;    // [T, k] int64, distinct within a token, in [0, E)
  at::Tensor
      share;  // [T, E] fp32, differentiable: each expert's share of the scores, for the load loss
};

/// softmax: p = softmax(z), top-k of p, divided by their sum if `renormalise`,
/// times routed_scale (Qwen3-MoE). sigmoid: s = sig(z), top-k of s + bias, gates
/// s, likewise (GLM-4.5, DeepSeek-V3); the bias chooses only. With groups > 1, only
/// experts of the top_groups groups are chosen whose best two s + bias add up to most.
///   x: [T, d], in the model's dtype; weight: [E, d]; bias: [E] or undefined.
/// Logits that are NaN or infinite never break the choice: NaN counts as the
/// least, infinities as the greatest or least finite values, with no gradient
/// through them and one warning in the run.
Routing route(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
              const model::MoeConfig& config);

/// The load loss E * sum_e f_e P_e (Fedus et al., arXiv 2101.03961, eq. 4), with
/// f_e = pairs of e over all pairs and P_e = mean share of e, both over all
/// ranks. This rank's part: P_e takes this rank's tokens alone, divided by all
/// tokens, so that the ranks' parts add up to the whole.
///   share_sum: [E], of this rank's tokens; fraction: f [E]; tokens: over all ranks.
at::Tensor load_loss(const at::Tensor& share_sum, const at::Tensor& fraction, std::int64_t tokens);

}  // namespace lrmoe::moe
