#include "lrmoe/plan/fixed.h"

#include "lrmoe/plan/even.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

class Fixed : public Strategy {
 public:
  explicit Fixed(Activations activations) : activations_(activations) {}
  std::string_view name() const override { return "fixed"; }
  bool owns_experts() const override { return true; }
  Placement initial(const Cluster& cluster) const override { return fixed_placement(cluster); }
  Placement place(const Cluster& cluster, const Counts& /*demand*/, const Placement& /*present*/,
                  const ScoreCurves* /*curves*/) const override {
    return fixed_placement(cluster);
  }
  Plan route(const RouteInput& input) const override {
    return route_evenly(name(), input, kNoCapacity, activations_);
  }

 protected:
  Activations activations_;
};

class FixedCapacity final : public Fixed {
 public:
  FixedCapacity(double factor, Activations activations) : Fixed(activations), factor_(factor) {
    check_capacity_factor(name(), factor);
  }
  std::string_view name() const override { return "fixed-capacity"; }
  Plan route(const RouteInput& input) const override {
    return route_evenly(name(), input,
                        capacity_of(factor_, total_pairs(input.demand), input.cluster.experts),
                        activations_);
  }

 private:
  double factor_;
};

}  // namespace

Placement fixed_placement(const Cluster& cluster) {
  check_cluster(cluster);
  Placement placement(cluster.ranks, cluster.slots, -1);
  std::vector<int> used(static_cast<std::size_t>(cluster.ranks), 0);
  for (int e = 0; e < cluster.experts; ++e) {
    const auto rank =
        static_cast<int>(static_cast<std::int64_t>(e) * cluster.ranks / cluster.experts);
    placement.at(rank, used[static_cast<std::size_t>(rank)]++) = e;
  }
  return placement;
}

std::unique_ptr<const Strategy> make_fixed(const StrategyOptions& options) {
  return std::make_unique<Fixed>(activations_of(options));
}

std::unique_ptr<const Strategy> make_fixed_capacity(const StrategyOptions& options) {
  return std::make_unique<FixedCapacity>(options.capacity_factor, activations_of(options));
}

}  // namespace lrmoe::plan
