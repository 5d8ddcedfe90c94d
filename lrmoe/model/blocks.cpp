#include "lrmoe/model/blocks.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <vector>

namespace lrmoe::model {

namespace {

// Norms, softmax and loss never run below fp32; fp64 stays fp64.
at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype) {
  return at::linear(x.to(dtype), weight.to(dtype));
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor w = x.to(wide(x.scalar_type()));
  const at::Tensor scale = at::rsqrt(w.square().mean(-1, /*keepdim=*/true) + eps);
  return w * scale * weight;
}

Rotary::Rotary(int positions, int dim, double theta, at::ScalarType dtype) {
  const at::Tensor position = at::arange(positions, at::kDouble);
  const at::Tensor exponent = at::arange(dim / 2, at::kDouble) * (-2.0 / dim);
  const at::Tensor angle = at::outer(position, at::pow(theta, exponent));
  cosine = angle.cos().to(wide(dtype));
  sine = angle.sin().to(wide(dtype));
}

at::Tensor Rotary::apply(const at::Tensor& x) const {
  const std::int64_t length = x.size(2);
  const at::Tensor c = cosine.narrow(0, 0, length);
  const at::Tensor s = sine.narrow(0, 0, length);
  const std::vector<at::Tensor> half = x.to(c.scalar_type()).chunk(2, -1);
  return at::cat({half[0] * c - half[1] * s, half[1] * c + half[0] * s}, -1).to(x.scalar_type());
}

at::Tensor attention(const at::Tensor& x, const AttentionWeights& weights, int heads, int kv_heads,
                     const Rotary& rotary, at::ScalarType dtype) {
  const std::int64_t batch = x.size(0);
  const std::int64_t length = x.size(1);
  const std::int64_t dim = weights.query.size(0) / heads;
  const auto split = [&](const at::Tensor& projected, int count) {
    return projected.view({batch, length, count, dim}).transpose(1, 2);
  };
  const at::Tensor input = x.to(dtype);
  const at::Tensor q = rotary.apply(split(linear(input, weights.query, dtype), heads));
  at::Tensor k = rotary.apply(split(linear(input, weights.key, dtype), kv_heads));
  at::Tensor v = split(linear(input, weights.value, dtype), kv_heads);
  if (kv_heads != heads) {
    const std::int64_t group = heads / kv_heads;
    const auto repeat = [&](const at::Tensor& t) {
      return t.unsqueeze(2)
          .expand({batch, kv_heads, group, length, dim})
          .reshape({batch, heads, length, dim});
    };
    k = repeat(k);
    v = repeat(v);
  }
  // A rank without sequences has nothing to mix; the kernels want at least one row.
  const at::Tensor mixed =
      batch == 0 ? q : at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true);
  const at::Tensor joined = mixed.transpose(1, 2).reshape({batch, length, heads * dim});
  return linear(joined, weights.output, dtype).to(x.scalar_type());
}

at::Tensor gated_mlp(const at::Tensor& x, const MlpWeights& weights, at::ScalarType dtype) {
  const std::vector<at::Tensor> parts = linear(x, weights.gate_up, dtype).chunk(2, -1);
  return linear(at::silu(parts[0]) * parts[1], weights.down, dtype).to(x.scalar_type());
}

}  // namespace lrmoe::model
