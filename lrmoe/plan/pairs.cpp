#include "lrmoe/plan/pairs.h"

#include <algorithm>

#include "lrmoe/base/buckets.h"
#include "lrmoe/base/error.h"
#include "lrmoe/plan/cells.h"

namespace lrmoe::plan {
namespace {

// Reorders each expert's pairs so that route after route takes its share of the
// listed ones; within a route they stay in order of token.
void spread_listed(Buckets& by_expert, std::span<const Route> routes,
                   std::span<const std::uint8_t> listed) {
  for (std::size_t i = 0; i < routes.size();) {
    const auto e = static_cast<std::size_t>(routes[i].expert);
    const auto first = by_expert.items.begin() + by_expert.begin[e];
    const auto last = by_expert.items.begin() + by_expert.begin[e + 1];
    const std::vector<std::int64_t> pairs(first, last);
    std::vector<std::int64_t> on, off;
    for (const auto pair : pairs) {
      (listed[static_cast<std::size_t>(pair)] != 0 ? on : off).push_back(pair);
    }
    const auto all = static_cast<std::int64_t>(pairs.size());
    auto next_on = on.begin(), next_off = off.begin();
    auto out = first;
    for (std::int64_t begin = 0; i < routes.size() && routes[i].expert == static_cast<int>(e);
         ++i) {
      const std::int64_t count = routes[i].pairs;
      const auto share =
          listed_share(static_cast<std::int64_t>(on.size()), all, begin, begin + count);
      const auto end =
          std::merge(next_on, next_on + share, next_off, next_off + (count - share), out);
      next_on += share;
      next_off += count - share;
      begin += count;
      out = end;
    }
    LRMOE_ASSERT(out == last, "a shortlist needs a split that routes every pair");
  }
}

}  // namespace

std::span<const Route> routes_of(const Split& split, int source) {
  const auto first = std::ranges::lower_bound(split, source, {}, &Route::source);
  const auto last = std::ranges::upper_bound(split, source, {}, &Route::source);
  return {first, last};
}

RoutedPairs route_pairs(std::span<const std::int64_t> experts, int expert_count,
                        std::span<const Route> routes_of_source, int ranks,
                        std::span<const std::uint8_t> listed) {
  Buckets by_expert = bucket(experts, expert_count + 1);
  if (!listed.empty()) {
    spread_listed(by_expert, routes_of_source, listed);
  }
  struct Part {
    std::int32_t rank;
    std::int64_t begin, count;
  };
  std::vector<Part> parts;
  std::vector<std::int64_t> used(static_cast<std::size_t>(expert_count), 0);
  RoutedPairs out;
  out.per_rank.assign(static_cast<std::size_t>(ranks), 0);
  for (const auto& route : routes_of_source) {
    const auto e = static_cast<std::size_t>(route.expert);
    parts.push_back({route.rank, by_expert.begin[e] + used[e], route.pairs});
    used[e] += route.pairs;
    LRMOE_ASSERT(by_expert.begin[e] + used[e] <= by_expert.begin[e + 1],
                 "a split routes more pairs than there are");
    out.per_rank[static_cast<std::size_t>(route.rank)] += route.pairs;
  }
  // The routes come sorted by expert, so a stable sort by rank gives (rank, expert).
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.rank < b.rank; });
  for (const auto& part : parts) {
    const auto begin = by_expert.items.begin() + part.begin;
    out.pair.insert(out.pair.end(), begin, begin + part.count);
  }
  return out;
}

std::vector<std::int32_t> cells_of_pairs(std::span<const Cell> cells, int expert_count,
                                         std::span<const std::int64_t> experts,
                                         const RoutedPairs& pairs,
                                         std::span<const std::uint8_t> listed) {
  std::vector<std::int32_t> first(static_cast<std::size_t>(expert_count), -1);
  for (std::size_t c = cells.size(); c-- > 0;) {
    first[static_cast<std::size_t>(cells[c].expert)] = static_cast<std::int32_t>(c);
  }
  std::vector<std::int32_t> cell_of_pair(experts.size(), -1);
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
    for (std::int64_t i = 0; i < pairs.per_rank[rank]; ++i, ++next) {
      const auto pair = static_cast<std::size_t>(pairs.pair[next]);
      if (!listed.empty() && listed[pair] == 0) {
        continue;
      }
      auto cell = first[static_cast<std::size_t>(experts[pair])];
      while (cells[static_cast<std::size_t>(cell)].rank >= 0 &&
             cells[static_cast<std::size_t>(cell)].rank != static_cast<std::int32_t>(rank)) {
        ++cell;
      }
      cell_of_pair[pair] = cell;
    }
  }
  return cell_of_pair;
}

RoutedPairs kept_in_place(const RoutedPairs& pairs, std::span<const float> weight) {
  RoutedPairs kept;
  std::size_t next = 0;
  for (const auto count : pairs.per_rank) {
    const auto before = static_cast<std::int64_t>(kept.pair.size());
    for (std::int64_t i = 0; i < count; ++i, ++next) {
      if (weight[static_cast<std::size_t>(pairs.pair[next])] > 0.0F) {
        kept.pair.push_back(pairs.pair[next]);
      }
    }
    kept.per_rank.push_back(static_cast<std::int64_t>(kept.pair.size()) - before);
  }
  return kept;
}

std::vector<std::int64_t> kept_experts(std::span<const std::int64_t> experts, int expert_count,
                                       std::span<const float> weight) {
  std::vector<std::int64_t> kept(experts.begin(), experts.end());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (weight[i] == 0.0F) {
      kept[i] = expert_count;
    }
  }
  return kept;
}

RoutedPairs route_cached(std::span<const std::int64_t> experts, int expert_count,
                         std::span<const Route> routes_of_source, int ranks,
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
          std::ranges::find(routes, home[static_cast<std::size_t>(pair)], &Route::rank);
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

}  // namespace lrmoe::plan
