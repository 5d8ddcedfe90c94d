// AdamW on flat fp32 tensors, one rule for dense parameters and expert shards.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace lrmoe::optim {

/// Decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101).
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

/// One step, in place, by ATen's fused kernel. All tensors have `parameter`'s
/// shape, fp32 (fp64 in tests). `step` counts from 1.
void adamw_step(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& moment,
                const at::Tensor& square, std::int64_t step, const AdamWOptions& options);

}  // namespace lrmoe::optim
