#include "lrmoe/optim/adamw.h"

#include <ATen/core/grad_mode.h>

namespace lrmoe::optim {

void adamw_step(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& moment,
                const at::Tensor& square, std::int64_t step, const AdamWOptions& options) {
  if (parameter.numel() == 0) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor count =
      at::full({}, static_cast<double>(step), parameter.options().dtype(at::kFloat));
  at::_fused_adamw_({parameter}, {gradient}, {moment}, {square}, {}, {count}, options.learning_rate,
                    options.beta1, options.beta2, options.weight_decay, options.epsilon, false,
                    false);
}

}  // namespace lrmoe::optim
