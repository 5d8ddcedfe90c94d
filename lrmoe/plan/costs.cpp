#include "lrmoe/plan/costs.h"

#include "lrmoe/cost/kernels.h"

namespace lrmoe::plan {
namespace {

// Kernels of a layer's backward pass and of its two exchanges' packing.
constexpr double kBackwardKernels = 10;
constexpr double kManyRows = 1e9;

}  // namespace

PlanCosts plan_costs(const cost::Profile& profile, const cost::Shape& shape, double scale,
                     int ranks, int ranks_per_node) {
  PlanCosts costs;
  if (profile.measured || profile.peak_flops <= 0) {
    return costs;
  }
  const double flops = profile.peak_flops * profile.efficiency(kManyRows) / scale;
  costs.forward_pair = cost::flops_per_pair(cost::Pass::forward, shape) / flops;
  costs.backward_pair = cost::flops_per_pair(cost::Pass::backward, shape) / flops;
  costs.recompute_pair =
      cost::flops_per_pair(cost::Pass::backward_recompute, shape) / flops - costs.backward_pair;
  const double row =
      scale * static_cast<double>(shape.hidden) * static_cast<double>(shape.element_bytes);
  costs.intra_row = row / profile.intra.bandwidth;
  const bool nodes = ranks_per_node > 0 && ranks > ranks_per_node;
  const cost::Link& far = nodes ? profile.inter : profile.intra;
  costs.inter_row = row / far.bandwidth;
  costs.backward_least = 2 * far.latency + kBackwardKernels * profile.launch;
  costs.fetch_instance =
      shape.expert_elements() * static_cast<double>(shape.element_bytes) / far.bandwidth;
  return costs;
}

}  // namespace lrmoe::plan
