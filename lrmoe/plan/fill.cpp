#include "lrmoe/plan/fill.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lrmoe::plan {
namespace {

struct Item {
  std::int64_t rest;
  std::int32_t expert;
  auto operator<=>(const Item&) const = default;
};

/// Where in `items`, by rising rest, the `count` neighbours begin whose sum comes
/// nearest to `mean` from below; the first where all are above.
std::size_t window(const std::vector<Item>& items, std::size_t count, std::int64_t mean) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += items[i].rest;
  }
  std::size_t begin = 0;
  while (begin + count < items.size()) {
    sum += items[begin + count].rest - items[begin].rest;
    if (sum > mean) {
      break;
    }
    ++begin;
  }
  return begin;
}

}  // namespace

Placement place_fill(const Cluster& cluster, std::span<const PhaseLoad> weights,
                     std::span<const std::int64_t> by) {
  const int most_whole = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
  if (cluster.slots <= most_whole) {
    return {};
  }
  std::vector<Item> items;
  for (std::size_t e = 0; e < by.size(); ++e) {
    items.push_back({by[e], static_cast<std::int32_t>(e)});
  }
  std::sort(items.begin(), items.end());
  const std::int64_t all = std::accumulate(by.begin(), by.end(), std::int64_t{0});
  const std::int64_t mean = (all + cluster.ranks - 1) / cluster.ranks;
  Placement placement(cluster.ranks, cluster.slots, -1);
  std::vector<int> used(static_cast<std::size_t>(cluster.ranks), 0);
  for (int r = 0; r < cluster.ranks; ++r) {
    const auto ranks_left = static_cast<std::size_t>(cluster.ranks - r);
    const std::size_t count = (items.size() + ranks_left - 1) / ranks_left;
    const std::size_t begin = window(items, count, mean);
    std::int64_t sum = 0;
    int& slot = used[static_cast<std::size_t>(r)];
    for (std::size_t i = begin; i < begin + count; ++i) {
      sum += items[i].rest;
      placement.at(r, slot++) = items[i].expert;
    }
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(begin),
                items.begin() + static_cast<std::ptrdiff_t>(begin + count));
    if (items.empty() || sum >= mean) {
      continue;
    }
    Item heaviest = items.back();
    items.pop_back();
    placement.at(r, slot++) = heaviest.expert;
    heaviest.rest = std::max<std::int64_t>(heaviest.rest - (mean - sum), 0);
    items.insert(std::lower_bound(items.begin(), items.end(), heaviest), heaviest);
  }
  share_rest(placement, used, weights);
  return placement;
}

}  // namespace lrmoe::plan
