#include "lrmoe/cost/kernels.h"

#include <algorithm>

namespace lrmoe::cost {

double flops_per_pair(Pass pass, const Shape& shape) {
  const double dn = static_cast<double>(shape.hidden) * static_cast<double>(shape.width);
  switch (pass) {
    case Pass::forward:
      return 6 * dn;
    case Pass::backward:
      return 12 * dn;
    case Pass::backward_recompute:
      return 16 * dn;
  }
  return 0;
}

double weight_bytes(Pass pass, const Shape& shape) {
  const double dn = static_cast<double>(shape.hidden) * static_cast<double>(shape.width);
  const double elements = pass == Pass::forward    ? 3 * dn
                          : pass == Pass::backward ? 9 * dn
                                                   : 11 * dn;
  return elements * static_cast<double>(shape.element_bytes);
}

double activation_bytes(Pass pass, const Shape& shape) {
  const auto d = static_cast<double>(shape.hidden);
  const auto n = static_cast<double>(shape.width);
  const double elements = pass == Pass::forward    ? 2 * d + 3 * n
                          : pass == Pass::backward ? 4 * d + 6 * n
                                                   : 5 * d + 8 * n;
  return elements * static_cast<double>(shape.element_bytes);
}

double gemm_seconds(Pass pass, std::span<const std::int32_t> rows, double scale,
                    const Profile& profile, const Shape& shape,
                    std::span<const std::int32_t> again) {
  const auto more = [&shape](const auto& of) {
    return of(Pass::backward_recompute, shape) - of(Pass::backward, shape);
  };
  double seconds = 0;
  bool any = false;
  bool any_again = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] <= 0) {
      continue;
    }
    any = true;
    const double m = scale * rows[i];
    double compute = m * flops_per_pair(pass, shape) / (profile.peak_flops * profile.efficiency(m));
    double bytes = weight_bytes(pass, shape) + m * activation_bytes(pass, shape);
    if (i < again.size() && again[i] > 0) {
      any_again = true;
      const double h = scale * again[i];
      compute += h * more(flops_per_pair) / (profile.peak_flops * profile.efficiency(h));
      bytes += more(weight_bytes) + h * more(activation_bytes);
    }
    seconds += std::max(compute, bytes / profile.memory_bandwidth);
  }
  // Grouped kernels: two GEMMs forward, four backward, one to compute g and u again.
  const double kernels = (pass == Pass::forward    ? 2
                          : pass == Pass::backward ? 4
                                                   : 5) +
                         (any_again ? 1 : 0);
  return any ? seconds + kernels * profile.launch : 0.0;
}

double memory_seconds(double bytes, const Profile& profile) {
  return bytes > 0 ? profile.launch + bytes / profile.memory_bandwidth : 0;
}

}  // namespace lrmoe::cost
