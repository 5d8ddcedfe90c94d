#include "lrmoe/plan/even.h"

#include <algorithm>
#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

constexpr std::int64_t kMicro = 1'000'000;
constexpr double kLargestFactor = 1e6;  // beyond it no capacity ever binds

}  // namespace

std::int64_t capacity_of(double factor, std::int64_t pairs, std::int64_t parts) {
  if (factor >= kLargestFactor) {
    return kNoCapacity;
  }
  const auto micro = static_cast<std::int64_t>(factor * static_cast<double>(kMicro) + 0.5);
  return mul_div(micro, pairs, kMicro * parts);
}

void check_capacity_factor(std::string_view strategy, double factor) {
  if (!(factor > 0.0)) {
    throw InputError("[strategy] capacity_factor of " + std::string(strategy) +
                     " must be above 0 (or inf for no drops), not " + std::to_string(factor));
  }
}

void check_input(const RouteInput& input) {
  const Cluster& c = input.cluster;
  LRMOE_ASSERT(input.demand.rows == c.ranks && input.demand.cols == c.experts,
               "[route] the demand is not [R, E]");
  LRMOE_ASSERT(input.placement.rows == c.ranks && input.placement.cols == c.slots,
               "[route] the placement is not [R, S]");
  for (const std::int32_t pairs : input.demand.values) {
    LRMOE_ASSERT(pairs >= 0, "[route] a demand is negative");
  }
}

Plan route_evenly(std::string_view strategy, const RouteInput& input, std::int64_t slot_capacity,
                  Activations activations) {
  check_input(input);
  const Cluster& cluster = input.cluster;
  Plan plan;
  plan.strategy = strategy;
  plan.activations = activations;
  plan.cluster = cluster;
  plan.demand = input.demand;
  plan.placement = input.placement;
  plan.dropped = Counts(cluster.ranks, cluster.experts);

  const auto slots = slots_of_experts(input.placement, cluster.experts);
  const auto pairs = pairs_per_expert(input.demand);
  Loads loads(cluster.experts, cluster.ranks);
  for (int e = 0; e < cluster.experts; ++e) {
    const auto& ranks = slots[static_cast<std::size_t>(e)];
    LRMOE_ASSERT(!ranks.empty(), "[route] expert " + std::to_string(e) + " has no instance");
    const std::int64_t all = pairs[static_cast<std::size_t>(e)];
    const auto count = static_cast<std::int64_t>(ranks.size());
    std::int64_t overflow = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t even = all / count + (i < all % count ? 1 : 0);
      const std::int64_t taken = input.evaluate ? even : std::min(even, slot_capacity);
      loads.at(e, ranks[static_cast<std::size_t>(i)]) += taken;
      overflow += even - taken;
    }
    if (overflow > 0) {
      std::vector<std::int64_t> shares;
      for (int r = 0; r < cluster.ranks; ++r) {
        shares.push_back(input.demand.at(r, e));
      }
      const auto drops = apportion(overflow, shares);
      for (int r = 0; r < cluster.ranks; ++r) {
        plan.dropped.at(r, e) = static_cast<std::int32_t>(drops[static_cast<std::size_t>(r)]);
      }
    }
  }
  plan.quota = plan.demand;
  for (std::size_t i = 0; i < plan.quota.values.size(); ++i) {
    plan.quota.values[i] -= plan.dropped.values[i];
  }
  plan.forward = assign_sources(cluster, plan.quota, loads);
  plan.backward = plan.forward;
  return plan;
}

}  // namespace lrmoe::plan
