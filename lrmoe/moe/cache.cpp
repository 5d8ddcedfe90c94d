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

RoutedPairs route_cached(std::span<const std::int64_t> experts, int expert_count,
                         std::span<const plan::Route> routes_of_source, int ranks,
                         std::span<const std::int32_t> home) {
  std::vector<std::vector<std::int64_t>> of_expert(static_cast<std::size_t>(expert_count) + 1);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    of_expert[static_cast<std::size_t>(experts[i])].push_back(static_cast<std::int64_t>(i));
  }
  // By destination; an expert's routes stand side by side.
  std::vector<std::vector<std::int64_t>> to_rank(static_cast<std::size_t>(ranks));
  for (std::size_t first = 0; first < routes_of_source.size();) {
    const std::int32_t expert = routes_of_source[first].expert;
    std::size_t last = first;
    while (last < routes_of_source.size() && routes_of_source[last].expert == expert) {
      ++last;
    }
    const auto routes = routes_of_source.subspan(first, last - first);
    first = last;
    std::vector<std::vector<std::int64_t>> filled(routes.size());
    std::vector<std::int64_t> left;
    for (const std::int64_t pair : of_expert[static_cast<std::size_t>(expert)]) {
      const auto at_home =
          std::ranges::find(routes, home[static_cast<std::size_t>(pair)], &plan::Route::rank);
      const auto i = static_cast<std::size_t>(at_home - routes.begin());
      if (i < routes.size() && static_cast<std::int32_t>(filled[i].size()) < routes[i].pairs) {
        filled[i].push_back(pair);
      } else {
        left.push_back(pair);
      }
    }
    auto next = left.begin();
    for (std::size_t i = 0; i < routes.size(); ++i) {
      while (static_cast<std::int32_t>(filled[i].size()) < routes[i].pairs) {
        LRMOE_ASSERT(next != left.end(), "a split routes more pairs than there are");
        filled[i].push_back(*next++);
      }
      std::sort(filled[i].begin(), filled[i].end());
      auto& out = to_rank[static_cast<std::size_t>(routes[i].rank)];
      out.insert(out.end(), filled[i].begin(), filled[i].end());
    }
    LRMOE_ASSERT(next == left.end(), "a split routes fewer pairs than are kept");
  }
  RoutedPairs out;
  for (const auto& pairs : to_rank) {
    out.pair.insert(out.pair.end(), pairs.begin(), pairs.end());
    out.per_rank.push_back(static_cast<std::int64_t>(pairs.size()));
  }
  return out;
}

}  // namespace lrmoe::moe
