#include "lrmoe/moe/dispatch.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/moe/exchange.h"
#include "lrmoe/plan/cells.h"

namespace lrmoe::moe {
namespace {

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

std::vector<std::int64_t> prefix_sums(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> sums(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), sums.begin() + 1);
  return sums;
}

// Lists the positions 0..keys-1 by key, stably: a counting sort.
struct Buckets {
  std::vector<std::int64_t> items;
  std::vector<std::int64_t> begin;  // [keys + 1]
};
Buckets bucket(std::span<const std::int64_t> keys, std::int64_t key_count) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(key_count), 0);
  for (const auto key : keys) {
    ++counts[static_cast<std::size_t>(key)];
  }
  Buckets out{std::vector<std::int64_t>(keys.size()), prefix_sums(counts)};
  std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto slot = next[static_cast<std::size_t>(keys[i])]++;
    out.items[static_cast<std::size_t>(slot)] = static_cast<std::int64_t>(i);
  }
  return out;
}

// Reorders each expert's pairs so that route after route takes its share of the
// listed ones; within a route they stay in order of token.
void spread_listed(Buckets& by_expert, std::span<const plan::Route> routes,
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
          plan::listed_share(static_cast<std::int64_t>(on.size()), all, begin, begin + count);
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

// Rows of the source side: one per (destination, token), tokens ascending.
// Returns each pair's row within its destination's block.
std::vector<std::int32_t> make_rows(Dispatch& d, const RoutedPairs& pairs, std::int64_t tokens,
                                    int top_k) {
  std::vector<std::int32_t> row_of_pair(pairs.pair.size());
  std::vector<std::int32_t> row_of_token(static_cast<std::size_t>(tokens), -1);
  std::vector<std::int64_t> row_token;
  std::vector<std::int64_t> sent_row(pairs.pair.size());
  std::size_t first = 0;
  for (const auto count : pairs.per_rank) {
    const auto last = first + static_cast<std::size_t>(count);
    const std::size_t block = row_token.size();
    for (auto i = first; i < last; ++i) {
      auto& row = row_of_token[static_cast<std::size_t>(pairs.pair[i] / top_k)];
      if (row < 0) {
        row = 0;
        row_token.push_back(pairs.pair[i] / top_k);
      }
    }
    std::sort(row_token.begin() + static_cast<std::ptrdiff_t>(block), row_token.end());
    for (auto i = block; i < row_token.size(); ++i) {
      row_of_token[static_cast<std::size_t>(row_token[i])] = static_cast<std::int32_t>(i - block);
    }
    for (auto i = first; i < last; ++i) {
      row_of_pair[i] = row_of_token[static_cast<std::size_t>(pairs.pair[i] / top_k)];
      sent_row[i] = static_cast<std::int64_t>(block) + row_of_pair[i];
    }
    for (auto i = block; i < row_token.size(); ++i) {
      row_of_token[static_cast<std::size_t>(row_token[i])] = -1;
    }
    d.send_rows.push_back(static_cast<std::int64_t>(row_token.size() - block));
    first = last;
  }
  Buckets by_token = bucket(row_token, tokens);
  d.row_token = to_tensor(row_token);
  d.token_rows = to_tensor(by_token.items);
  d.token_begin = to_tensor(by_token.begin);
  Buckets by_row = bucket(sent_row, static_cast<std::int64_t>(row_token.size()));
  d.sent_row_pairs = to_tensor(by_row.items);
  d.sent_row_begin = to_tensor(by_row.begin);
  return row_of_pair;
}

// Destination side: arrival order is (source, expert); computes by (slot, source).
void line_up(Dispatch& d, const std::vector<std::int32_t>& arrived_row, const plan::Split& split,
             const ExpertSlots& slots) {
  struct Segment {
    int slot;
    std::int64_t begin, count, first_row;
  };
  std::vector<Segment> segments;
  const auto row_base = prefix_sums(d.receive_rows);
  std::int64_t arrived = 0;
  for (const auto& route : split) {
    if (route.rank == slots.rank) {
      segments.push_back({slots.slot_of(route.expert), arrived, route.pairs,
                          row_base[static_cast<std::size_t>(route.source)]});
      arrived += route.pairs;
    }
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.slot < b.slot; });
  std::vector<std::int64_t> arrival, row;
  arrival.reserve(arrived_row.size());
  row.reserve(arrived_row.size());
  auto segment = segments.begin();
  for (const int slot : slots.instances(slots.rank)) {
    Group group{slot, static_cast<std::int64_t>(arrival.size()), 0};
    for (; segment != segments.end() && segment->slot == slot; ++segment) {
      for (auto i = segment->begin; i < segment->begin + segment->count; ++i) {
        arrival.push_back(i);
        row.push_back(segment->first_row + arrived_row[static_cast<std::size_t>(i)]);
      }
    }
    group.end = static_cast<std::int64_t>(arrival.size());
    d.groups.push_back(group);
  }
  LRMOE_ASSERT(segment == segments.end() && arrival.size() == arrived_row.size(),
               "a route ends at a rank that does not hold its expert");
  std::vector<std::int64_t> row_in_arrival(row.size()), place_of_arrival(row.size());
  for (std::size_t i = 0; i < arrival.size(); ++i) {
    row_in_arrival[static_cast<std::size_t>(arrival[i])] = row[i];
    place_of_arrival[static_cast<std::size_t>(arrival[i])] = static_cast<std::int64_t>(i);
  }
  Buckets by_row = bucket(row_in_arrival, row_base.back());
  for (auto& item : by_row.items) {
    item = place_of_arrival[static_cast<std::size_t>(item)];
  }
  d.arrival = to_tensor(arrival);
  d.place = to_tensor(place_of_arrival);
  d.row = to_tensor(row);
  d.row_pairs = to_tensor(by_row.items);
  d.row_begin = to_tensor(by_row.begin);
}

}  // namespace

std::span<const plan::Route> routes_of(const plan::Split& split, int source) {
  const auto range = std::ranges::equal_range(split, source, {}, &plan::Route::source);
  return {range.begin(), range.end()};
}

RoutedPairs route_pairs(std::span<const std::int64_t> experts, int expert_count,
                        std::span<const plan::Route> routes_of_source, int ranks,
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

Dispatch make_dispatch(comm::Communicator& communicator, const RoutedPairs& pairs,
                       std::int64_t tokens, int top_k, const plan::Split& split,
                       const ExpertSlots& slots) {
  Dispatch d;
  d.send_pairs = pairs.per_rank;
  d.pair = to_tensor(pairs.pair);
  const auto row_of_pair = make_rows(d, pairs, tokens, top_k);

  d.receive_rows = exchange_counts(communicator, d.send_rows);
  d.receive_pairs.assign(d.send_pairs.size(), 0);
  for (const auto& route : split) {
    if (route.rank == slots.rank) {
      d.receive_pairs[static_cast<std::size_t>(route.source)] += route.pairs;
    }
  }
  std::vector<std::int32_t> arrived_row(static_cast<std::size_t>(
      std::accumulate(d.receive_pairs.begin(), d.receive_pairs.end(), std::int64_t{0})));
  communicator.all_to_all_v(comm::view(std::span<const std::int32_t>(row_of_pair)), d.send_pairs,
                            comm::view(std::span<std::int32_t>(arrived_row)), d.receive_pairs);
  const auto remote_pairs = static_cast<std::int64_t>(pairs.pair.size()) -
                            d.send_pairs[static_cast<std::size_t>(slots.rank)];
  d.index_bytes = 4 * (remote_pairs + communicator.size() - 1);
  line_up(d, arrived_row, split, slots);
  return d;
}

at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& index, const at::Tensor& begin,
                    const at::Tensor& weights) {
  if (index.numel() == 0) {
    return at::zeros({begin.numel() - 1, rows.size(1)}, rows.options());
  }
  // An embedding bag is this very sum, and has a fast kernel on every device.
  constexpr std::int64_t kSum = 0;
  const bool widen = weights.defined() && weights.scalar_type() != rows.scalar_type();
  const at::Tensor values = widen ? rows.to(weights.scalar_type()) : rows;
  const auto bag = at::embedding_bag(
      values, index, begin, false, kSum, false,
      weights.defined() ? std::optional<at::Tensor>(weights) : std::nullopt, true);
  return std::get<0>(bag).to(rows.scalar_type());
}

}  // namespace lrmoe::moe
