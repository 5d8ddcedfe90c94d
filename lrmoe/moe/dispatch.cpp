#include "lrmoe/moe/dispatch.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/buckets.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::moe {
namespace {

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
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
void line_up(Dispatch& d, const std::vector<std::int32_t>& arrived_row, const plan::Split& receives,
             const ExpertSlots& slots) {
  struct Segment {
    int slot;
    std::int64_t begin, count, first_row;
  };
  std::vector<Segment> segments;
  const auto row_base = prefix_sums(d.receive_rows);
  std::int64_t arrived = 0;
  for (const auto& route : receives) {
    segments.push_back({slots.slot_of(route.expert), arrived, route.pairs,
                        row_base[static_cast<std::size_t>(route.source)]});
    arrived += route.pairs;
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

Dispatch make_dispatch(comm::Communicator& communicator, const RoutedPairs& pairs,
                       std::int64_t tokens, int top_k, const plan::Split& receives,
                       const ExpertSlots& slots) {
  Dispatch d;
  d.send_pairs = pairs.per_rank;
  d.pair = to_tensor(pairs.pair);
  const auto row_of_pair = make_rows(d, pairs, tokens, top_k);

  d.receive_rows = exchange_counts(communicator, d.send_rows);
  d.receive_pairs.assign(d.send_pairs.size(), 0);
  for (const auto& route : receives) {
    d.receive_pairs[static_cast<std::size_t>(route.source)] += route.pairs;
  }
  std::vector<std::int32_t> arrived_row(static_cast<std::size_t>(
      std::accumulate(d.receive_pairs.begin(), d.receive_pairs.end(), std::int64_t{0})));
  communicator.all_to_all_v(comm::view(std::span<const std::int32_t>(row_of_pair)), d.send_pairs,
                            comm::view(std::span<std::int32_t>(arrived_row)), d.receive_pairs);
  const auto remote_pairs = static_cast<std::int64_t>(pairs.pair.size()) -
                            d.send_pairs[static_cast<std::size_t>(slots.rank)];
  d.index_bytes = 4 * (remote_pairs + communicator.size() - 1);
  line_up(d, arrived_row, receives, slots);
  return d;
}

at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& index, const at::Tensor& begin,
                    const at::Tensor& weights) {
  if (index.numel() == 0) {
    return at::zeros({begin.numel() - 1, rows.size(1)}, rows.options());
  }
  // An embedding bag is this very sum, and has a fast kernel on every device.
  const auto sum = [&](const at::Tensor& values) {
    constexpr std::int64_t kSum = 0;
    return std::get<0>(at::embedding_bag(
        values, index, begin, false, kSum, false,
        weights.defined() ? std::optional<at::Tensor>(weights) : std::nullopt, true));
  };
  if (!weights.defined() || weights.scalar_type() == rows.scalar_type()) {
    return sum(rows);
  }
  // Some columns at a time, so that the wider copy is small.
  constexpr std::int64_t kColumns = 128;
  at::Tensor out = at::empty({begin.numel() - 1, rows.size(1)}, rows.options());
  for (std::int64_t c = 0; c < rows.size(1); c += kColumns) {
    const std::int64_t end = std::min(c + kColumns, rows.size(1));
    const at::Tensor wide =
        rows.slice(1, c, end).to(weights.scalar_type(), false, false, at::MemoryFormat::Contiguous);
    out.slice(1, c, end).copy_(sum(wide));
  }
  return out;
}

}  // namespace lrmoe::moe
