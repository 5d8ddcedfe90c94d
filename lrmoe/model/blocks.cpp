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

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype,
                  const at::Tensor& bias) {
  if (!bias.defined()) {
    return at::linear(x.to(dtype), weight.to(dtype));
  }
  return at::linear(x.to(dtype), weight.to(dtype), bias.to(dtype));
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor w = x.to(wide(x.scalar_type()));
  const at::Tensor scale = at::rsqrt(w.square().mean(-1, /*keepdim=*/true) + eps);
  return w * scale * weight;
}

Rotary::Rotary(int positions, int dim, double theta, at::ScalarType dtype, bool single) {
  const at::ScalarType type = single ? at::kFloat : at::kDouble;
  const at::Tensor position = at::arange(positions, type);
  at::Tensor frequency;
  if (single) {
    const at::Tensor exponent = at::arange(0, dim, 2, at::kFloat) / dim;
    frequency = at::reciprocal(at::pow(theta, exponent));
  } else {
    frequency = at::pow(theta, at::arange(dim / 2, at::kDouble) * (-2.0 / dim));
  }
  const at::Tensor angle = at::outer(position, frequency);
  cosine = angle.cos().to(wide(dtype));
  sine = angle.sin().to(wide(dtype));
}

at::Tensor Rotary::apply(const at::Tensor& x) const {
  const std::int64_t length = x.size(2);
  const at::Tensor c = cosine.narrow(0, 0, length);
  const at::Tensor s = sine.narrow(0, 0, length);
  const at::Tensor full = x.to(c.scalar_type());
  const std::int64_t dim = 2 * c.size(1);
  const at::Tensor rotated = dim == full.size(-1) ? full : full.narrow(-1, 0, dim);
  const std::vector<at::Tensor> half = rotated.chunk(2, -1);
  std::vector<at::Tensor> parts{half[0] * c - half[1] * s, half[1] * c + half[0] * s};
  if (dim != full.size(-1)) {
    parts.push_back(full.narrow(-1, dim, full.size(-1) - dim));
  }
  return at::cat(parts, -1).to(x.scalar_type());
}

namespace {

// A projection's heads [B, count, S, dim], normed on the way where there is a norm.
at::Tensor split_heads(const at::Tensor& projected, int count, const at::Tensor& norm, double eps) {
  const std::int64_t dim = projected.size(-1) / count;
  const bool whole = norm.defined() && norm.numel() != dim;
  at::Tensor heads = whole ? rms_norm(projected, norm, eps) : projected;
  heads = heads.view({projected.size(0), projected.size(1), count, dim});
  if (norm.defined() && !whole) {
    heads = rms_norm(heads, norm, eps);
  }
  return heads.transpose(1, 2);
}

}  // namespace

at::Tensor attention(const at::Tensor& x, const AttentionWeights& weights, int heads, int kv_heads,
                     const Rotary& rotary, at::ScalarType dtype, double norm_eps) {
  const std::int64_t batch = x.size(0);
  const std::int64_t length = x.size(1);
  const std::int64_t dim = weights.query.size(0) / heads;
  const at::Tensor input = x.to(dtype);
  const auto project = [&](const at::Tensor& weight, const at::Tensor& bias, int count,
                           const at::Tensor& norm) {
    return split_heads(linear(input, weight, dtype, bias), count, norm, norm_eps);
  };
  const at::Tensor q =
      rotary.apply(project(weights.query, weights.query_bias, heads, weights.query_norm)).to(dtype);
  at::Tensor k =
      rotary.apply(project(weights.key, weights.key_bias, kv_heads, weights.key_norm)).to(dtype);
  at::Tensor v = project(weights.value, weights.value_bias, kv_heads, {});
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
  return linear(joined, weights.output, dtype, weights.output_bias).to(x.scalar_type());
}

at::Tensor gated_mlp(const at::Tensor& x, const MlpWeights& weights, at::ScalarType dtype) {
  const std::vector<at::Tensor> parts = linear(x, weights.gate_up, dtype).chunk(2, -1);
  return linear(at::silu(parts[0]) * parts[1], weights.down, dtype).to(x.scalar_type());
}

}  // namespace lrmoe::model
