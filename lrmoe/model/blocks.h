// The dense parts of a transformer block as functions of their weights. All take
// and return the residual stream's dtype; matmuls run in `dtype`.
#pragma once

#include <ATen/ATen.h>

namespace lrmoe::model {

/// x W^T + b with x [.., in], W [out, in] and b [out] (or undefined), cast to `dtype`.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype,
                  const at::Tensor& bias = {});

/// x / sqrt(mean x^2 + eps) * weight over the last dimension, in fp32 at least.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Cosines and sines of the rotary positions (arXiv 2104.09864), [S, dim / 2]
/// each: position s, pair i has the angle s theta^(-2 i / dim).
struct Rotary {
  at::Tensor cosine, sine;
  /// `single`: angles are computed in fp32, as Transformers does, and not in fp64.
  Rotary(int positions, int dim, double theta, at::ScalarType dtype, bool single = false);
  /// x: [B, H, S, D], S at most the positions, D at least dim; of the first dim
  /// elements, i is paired with i + dim/2, the others stay.
  at::Tensor apply(const at::Tensor& x) const;
};

struct AttentionWeights {
  at::Tensor query;   // [heads * dim, d]
  at::Tensor key;     // [kv_heads * dim, d]
  at::Tensor value;   // [kv_heads * dim, d]
  at::Tensor output;  // [d, heads * dim]
  // Undefined where a model has none.
  at::Tensor query_bias, key_bias, value_bias, output_bias;
  at::Tensor query_norm;  // [dim]: of each head; [heads * dim]: of all heads together
  at::Tensor key_norm;    // [dim] or [kv_heads * dim]
};
/// Causal grouped-query attention: query head h reads key head h / (heads / kv_heads).
/// x: [B, S, d]. `norm_eps`: of the queries' and keys' norms.
at::Tensor attention(const at::Tensor& x, const AttentionWeights& weights, int heads, int kv_heads,
                     const Rotary& rotary, at::ScalarType dtype, double norm_eps = 1e-6);

/// down (silu(gate x) * up x), gate first in gate_up [2n, d].
struct MlpWeights {
  at::Tensor gate_up;
  at::Tensor down;  // [d, n]
};
at::Tensor gated_mlp(const at::Tensor& x, const MlpWeights& weights, at::ScalarType dtype);

}  // namespace lrmoe::model
