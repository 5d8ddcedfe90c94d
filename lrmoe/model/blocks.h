// The dense parts of a transformer block as functions of their weights. All take
// and return the residual stream's dtype; matmuls run in `dtype`.
#pragma once

#include <ATen/ATen.h>

namespace lrmoe::model {

/// x W^T with x [.., in] and W [out, in], both cast to `dtype`.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype);

/// x / sqrt(mean x^2 + eps) * weight over the last dimension, in fp32 at least.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Cosines and sines of the rotary positions (arXiv 2104.09864), [S, dim / 2]
/// each: position s, pair i has the angle s theta^(-2 i / dim).
struct Rotary {
  at::Tensor cosine, sine;
  Rotary(int positions, int dim, double theta, at::ScalarType dtype);
  /// x: [B, H, S, dim], S at most the positions; element i is paired with i + dim/2.
  at::Tensor apply(const at::Tensor& x) const;
};

struct AttentionWeights {
  at::Tensor query;   // [heads * dim, d]
  at::Tensor key;     // [kv_heads * dim, d]
  at::Tensor value;   // [kv_heads * dim, d]
  at::Tensor output;  // [d, heads * dim]
};
/// Causal grouped-query attention: query head h reads key head h / (heads / kv_heads).
/// x: [B, S, d].
at::Tensor attention(const at::Tensor& x, const AttentionWeights& weights, int heads, int kv_heads,
                     const Rotary& rotary, at::ScalarType dtype);

/// down (silu(gate x) * up x), gate first in gate_up [2n, d].
struct MlpWeights {
  at::Tensor gate_up;
  at::Tensor down;  // [d, n]
};
at::Tensor gated_mlp(const at::Tensor& x, const MlpWeights& weights, at::ScalarType dtype);

}  // namespace lrmoe::model
