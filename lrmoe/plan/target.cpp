#include "lrmoe/plan/target.h"

#include <algorithm>

namespace lrmoe::plan {
namespace {

constexpr double kLeast = 1e-6;

/// Rows that `tokens` tokens send to each of `ranks` ranks with so many pairs in all
/// (plan/memory.h, expected_rows, without rounding).
double rows_per_rank(double tokens, double pairs, int ranks, int top_k) {
  if (tokens <= 0) {
    return 0;
  }
  const double miss = 1.0 - pairs / (tokens * top_k * ranks);
  double all_miss = 1.0;
  for (int k = 0; k < top_k; ++k) {
    all_miss *= miss;
  }
  return tokens * (1.0 - all_miss);
}

}  // namespace

double backward_seconds(const PlanCosts& costs, const Cluster& cluster, std::int64_t pairs,
                        double ratio, Activations activations) {
  const bool again = activations == Activations::recompute;
  const double here = static_cast<double>(pairs) / cluster.ranks;  // a rank's pairs, all of them
  const double kept = ratio * here;
  const double rows = rows_per_rank(here / cluster.top_k, kept, cluster.ranks, cluster.top_k);
  const int node =
      cluster.ranks_per_node > 0 ? std::min(cluster.ranks_per_node, cluster.ranks) : cluster.ranks;
  const double near = rows * (node - 1) * costs.intra_row;
  const double far = rows * (cluster.ranks - node) * costs.inter_row;
  return costs.backward_least +
         kept * (costs.backward_pair + (again ? costs.recompute_pair : 0.0)) +
         (again ? 3 : 2) * std::max(near, far);
}

double ratio_for_time(const PlanCosts& costs, const Cluster& cluster, std::int64_t pairs,
                      double seconds, Activations activations) {
  const auto fits = [&](double ratio) {
    return backward_seconds(costs, cluster, pairs, ratio, activations) <= seconds;
  };
  if (fits(1.0)) {
    return 1.0;
  }
  double low = 0.0;
  double high = 1.0;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return std::max(low, kLeast);
}

}  // namespace lrmoe::plan
