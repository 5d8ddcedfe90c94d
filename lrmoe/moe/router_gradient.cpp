#include "lrmoe/moe/router_gradient.h"

#include "lrmoe/base/error.h"

namespace lrmoe::moe {
namespace {

// numerator / denominator, and 0 where nothing is shared out.
at::Tensor share(const at::Tensor& numerator, const at::Tensor& denominator) {
  const at::Tensor safe = at::where(denominator > 0, denominator, at::ones_like(denominator));
  return at::where(denominator > 0, numerator / safe, at::zeros_like(numerator));
}

}  // namespace

at::Tensor gate_gradient(plan::RouterGradient mode, const at::Tensor& gates, const at::Tensor& dp,
                         const at::Tensor& weight, const at::Tensor& routed,
                         const at::Tensor& delta_o) {
  switch (mode) {
    case plan::RouterGradient::kept:
      return weight * dp;
    case plan::RouterGradient::centred: {
      const at::Tensor b = share(delta_o, (gates * routed).sum(1)).unsqueeze(1);
      return (b + weight * (dp - b)) * routed;
    }
    case plan::RouterGradient::remainder: {
      const at::Tensor kept = (weight > 0).to(gates.scalar_type());
      const at::Tensor left = delta_o - (gates * dp * kept).sum(1);
      const at::Tensor b = share(left, (gates * routed * (1 - kept)).sum(1)).unsqueeze(1);
      return kept * dp + (1 - kept) * routed * b;
    }
    case plan::RouterGradient::exact:
      break;
  }
  throw InternalError("[gate_gradient] the exact gradient is not made from the kept pairs");
}

}  // namespace lrmoe::moe
