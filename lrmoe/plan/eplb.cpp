#include "lrmoe/plan/eplb.h"

#include <limits>

#include "lrmoe/plan/even.h"
#include "lrmoe/plan/place.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

class Eplb final : public Strategy {
 public:
  explicit Eplb(Activations activations) : activations_(activations) {}
  std::string_view name() const override { return "eplb"; }
  Placement initial(const Cluster& cluster) const override {
    check_cluster(cluster);
    return place(cluster, Counts(cluster.ranks, cluster.experts, 1), {}, nullptr);
  }
  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* /*curves*/) const override {
    if (total_pairs(demand) == 0) {
      return present;
    }
    const auto weights = pairs_per_expert(demand);
    const std::int64_t all = std::int64_t{cluster.ranks} * cluster.slots;
    const auto instances = greedy_replicas(weights, all, cluster.ranks);
    return pack_balanced(weights, instances, cluster.ranks, cluster.slots, true);
  }
  Plan route(const RouteInput& input) const override {
    return route_evenly(name(), input, kNoCapacity, activations_);
  }

 private:
  Activations activations_;
};

}  // namespace

Placement eplb_as_published(std::span<const std::int64_t> weights, int ranks, int slots) {
  const auto instances = greedy_replicas(weights, std::int64_t{ranks} * slots,
                                         std::numeric_limits<std::int32_t>::max());
  return pack_balanced(weights, instances, ranks, slots, false);
}

std::unique_ptr<const Strategy> make_eplb(const StrategyOptions& options) {
  return std::make_unique<Eplb>(activations_of(options));
}

}  // namespace lrmoe::plan
