#include "lrmoe/plan/evenest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "lrmoe/plan/balance.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/instances.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

constexpr std::int64_t kLittle = kEven / 400;

/// The least that fullest_share can be: a rank cannot hold a part of a pair.
std::int64_t even_share(int ranks, std::span<const std::int64_t> forward,
                        std::span<const std::int64_t> backward) {
  std::int64_t share = kEven;
  for (const auto weights : {forward, backward}) {
    const std::int64_t all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    if (all > 0) {
      share = std::max(share, mul_div((all + ranks - 1) / ranks, ranks * kEven, all));
    }
  }
  return share;
}

}  // namespace

std::int64_t fullest_share(const Placement& placement, std::span<const std::int64_t> forward,
                           std::span<const std::int64_t> backward) {
  InstanceIndex index;
  index.build(placement, static_cast<int>(forward.size()));
  std::vector<std::int64_t> loads(static_cast<std::size_t>(index.size()));
  Balancer balancer;
  std::int64_t share = 0;
  for (const auto weights : {forward, backward}) {
    const std::int64_t all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    if (all > 0) {
      const std::int64_t most = balancer.split(index, weights, {}, loads);
      share = std::max(share, mul_div(most, placement.rows * kEven, all));
    }
  }
  return share;
}

Placement place_evenest(const Cluster& cluster, std::span<const std::int64_t> forward,
                        std::span<const std::int64_t> backward, const RobustSettings& settings) {
  Placement best = place_robust(cluster, forward, backward, settings);
  std::int64_t least = fullest_share(best, forward, backward);
  const std::int64_t even = even_share(cluster.ranks, forward, backward);
  Cluster fewer = cluster;
  while (least > even + kLittle && (fewer.slots - 1) * fewer.ranks >= fewer.experts) {
    --fewer.slots;
    Placement other = place_robust(fewer, forward, backward, settings);
    const std::int64_t share = fullest_share(other, forward, backward);
    if (share + mul_div(share, kLittle, kEven) < least) {
      best = with_slots(other, cluster.slots);
      least = share;
    }
  }
  return best;
}

}  // namespace lrmoe::plan
