#include "lrmoe/moe/cache.h"

#include <algorithm>

namespace lrmoe::moe {

CacheRoom::CacheRoom(const plan::RankPlan& plan, const ExpertSlots& slots)
    : instances_(slots.placement.row(slots.rank).size()) {
  const auto add = [&](const plan::Split& split, std::int64_t Instance::*count) {
    for (const plan::Route& route : split) {
      instances_[static_cast<std::size_t>(slots.slot_of(route.expert))].*count += route.pairs;
    }
  };
  add(plan.receives, &Instance::forward);
  add(plan.kept_receives, &Instance::backward);
}

at::Tensor CacheRoom::choose(const at::Tensor& likely, std::span<const Group> groups) {
  at::Tensor cached = at::zeros({likely.numel()}, at::kBool);
  for (const Group& group : groups) {
    Instance& instance = instances_[static_cast<std::size_t>(group.slot)];
    const std::int64_t here = group.end - group.begin;
    if (here == 0) {
      continue;
    }
    const std::int64_t room = std::min(instance.backward, instance.forward);
    const std::int64_t share =
        room * (instance.seen + here) / instance.forward - room * instance.seen / instance.forward;
    instance.seen += here;
    const at::Tensor mine = likely.slice(0, group.begin, group.end);
    const at::Tensor best =
        std::get<1>(at::sort(mine, /*stable=*/true, 0, /*descending=*/true)).slice(0, 0, share);
    cached.slice(0, group.begin, group.end).index_fill_(0, best, true);
  }
  return cached.logical_and_(likely >= 0);
}

}  // namespace lrmoe::moe
