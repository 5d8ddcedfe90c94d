#include "lrmoe/plan/symi.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/even.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

class Symi final : public Strategy {
 public:
  Symi(double factor, Activations activations) : factor_(factor), activations_(activations) {
    check_capacity_factor(name(), factor);
  }
  std::string_view name() const override { return "symi"; }
  Placement initial(const Cluster& cluster) const override {
    check_cluster(cluster);
    const std::vector<std::int64_t> uniform(static_cast<std::size_t>(cluster.experts), 1);
    return symi_placement(cluster, uniform);
  }
  Placement place(const Cluster& cluster, const Counts& demand, const Placement& /*present*/,
                  const ScoreCurves* /*curves*/) const override {
    return symi_placement(cluster, pairs_per_expert(demand));
  }
  Plan route(const RouteInput& input) const override {
    const std::int64_t slots = std::int64_t{input.cluster.ranks} * input.cluster.slots;
    return route_evenly(name(), input, capacity_of(factor_, total_pairs(input.demand), slots),
                        activations_);
  }

 private:
  double factor_;
  Activations activations_;
};

}  // namespace

std::vector<std::int32_t> symi_counts(std::span<const std::int64_t> popularity,
                                      std::int64_t slots) {
  const std::size_t experts = popularity.size();
  LRMOE_ASSERT(slots >= static_cast<std::int64_t>(experts), "[symi] fewer slots than experts");
  std::vector<std::int64_t> weights(popularity.begin(), popularity.end());
  std::int64_t sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  if (sum == 0) {
    std::fill(weights.begin(), weights.end(), 1);
    sum = static_cast<std::int64_t>(experts);
  }
  std::vector<std::int32_t> counts(experts);
  std::int64_t total = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    counts[e] = static_cast<std::int32_t>(std::max<std::int64_t>(weights[e] * slots / sum, 1));
    total += counts[e];
  }
  // (count - goal) * sum: how far an expert stands above its goal.
  const auto excess = [&](std::size_t e) { return counts[e] * sum - weights[e] * slots; };
  for (; total > slots; --total) {
    std::size_t best = experts;
    for (std::size_t e = 0; e < experts; ++e) {
      if (counts[e] > 1 && (best == experts || excess(e) > excess(best))) {
        best = e;
      }
    }
    --counts[best];
  }
  for (; total < slots; ++total) {
    std::size_t best = 0;
    for (std::size_t e = 1; e < experts; ++e) {
      if (excess(e) < excess(best)) {
        best = e;
      }
    }
    ++counts[best];
  }
  return counts;
}

Placement symi_placement(const Cluster& cluster, std::span<const std::int64_t> popularity) {
  check_cluster(cluster);
  const auto counts = symi_counts(popularity, std::int64_t{cluster.ranks} * cluster.slots);
  Placement placement(cluster.ranks, cluster.slots, -1);
  std::size_t slot = 0;
  for (int e = 0; e < cluster.experts; ++e) {
    for (std::int32_t i = 0; i < counts[static_cast<std::size_t>(e)]; ++i) {
      placement.values[slot++] = e;
    }
  }
  return placement;
}

std::unique_ptr<const Strategy> make_symi(const StrategyOptions& options) {
  return std::make_unique<Symi>(options.capacity_factor, activations_of(options));
}

}  // namespace lrmoe::plan
