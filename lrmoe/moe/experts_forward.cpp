// Forward pass of the routed experts: dispatch, grouped gated MLPs, combine; chunk
// after chunk. A tensor goes as soon as nothing needs it any more: what is alive
// when is counted in docs/memory.md and in plan/memory.cpp.
#include "lrmoe/moe/experts_state.h"
#include "lrmoe/moe/grouped.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/moe/wire.h"

namespace lrmoe::moe {
namespace {

// Numbers per pair, in destination order, home to the source: [T * k, ...] by pair.
at::Tensor bring_home(Wire& wire, const at::Tensor& values, const Dispatch& d, std::int64_t pairs) {
  const at::Tensor home = wire.send(values.index_select(0, d.place), d.receive_pairs, d.send_pairs);
  return at::zeros({pairs, values.size(1)}, values.options()).index_copy_(0, d.pair, home);
}

// Sums of a row's p_k y_k, made where y is or, with all y at hand, at the source:
// the same bits either way. Takes y.
at::Tensor combine(const ExpertsState& s, Chunk& chunk, Wire& wire, at::Tensor y,
                   const at::Tensor& sent_gates) {
  const Dispatch& d = chunk.dispatch;
  if (s.keeps_outputs()) {
    at::Tensor ordered = y.index_select(0, d.place);
    y.reset();
    chunk.outputs = wire.send(ordered, d.receive_pairs, d.send_pairs);
    ordered.reset();
    return sum_rows(chunk.outputs, d.sent_row_pairs, d.sent_row_begin,
                    sent_gates.index_select(0, d.sent_row_pairs));
  }
  at::Tensor summed =
      sum_rows(y, d.row_pairs, d.row_begin, chunk.gates.index_select(0, d.row_pairs));
  y.reset();
  return wire.send(summed, d.receive_rows, d.send_rows);
}

// Flags by pair of this rank's chunk, at their destination and in its order: [P'].
at::Tensor flags_at_destination(Wire& wire, const Chunk& chunk,
                                std::span<const std::uint8_t> flags) {
  const Dispatch& d = chunk.dispatch;
  at::Tensor sent = at::empty({d.pair.numel()}, at::kByte);
  for (std::size_t i = 0; i < chunk.pairs.pair.size(); ++i) {
    sent.mutable_data_ptr<std::uint8_t>()[i] = flags[static_cast<std::size_t>(chunk.pairs.pair[i])];
  }
  return wire.send(sent, d.send_pairs, d.receive_pairs).index_select(0, d.arrival).to(at::kBool);
}

// Only the pairs with a flag, and the rows that they came from, stay.
void keep_flagged(Chunk& chunk, const at::Tensor& flags) {
  const Dispatch& d = chunk.dispatch;
  const at::Tensor kept = flags.nonzero().flatten();
  chunk.compact = at::cumsum(flags, 0, at::kLong).sub_(1);
  chunk.gate_up = chunk.gate_up.index_select(0, kept);
  at::Tensor row_kept = at::zeros({chunk.rows.size(0)}, at::kBool);
  row_kept.index_fill_(0, d.row.index_select(0, kept), true);
  const at::Tensor new_row = at::cumsum(row_kept, 0, at::kLong).sub_(1);
  chunk.compact_row = new_row.index_select(0, d.row.index_select(0, kept));
  chunk.rows = chunk.rows.index_select(0, row_kept.nonzero().flatten());
}

// Activation mode quota: caches the likeliest pairs and tells their sources.
void cache_likely(ExpertsState& s, Chunk& chunk, Wire& wire, const at::Tensor& a,
                  std::span<const std::uint8_t> listed) {
  const Dispatch& d = chunk.dispatch;
  at::Tensor likely = squares(a).sqrt().to(at::kFloat).mul_(chunk.gates);
  if (!listed.empty()) {
    likely.masked_fill_(flags_at_destination(wire, chunk, listed).logical_not(), -1.0);
  }
  const at::Tensor cached = s.room.choose(likely, d.groups);
  if (!s.oracle()) {
    keep_flagged(chunk, cached);
  }
  const at::Tensor bits = cached.to(at::kByte).index_select(0, d.place);
  const at::Tensor home = wire.send(bits, d.receive_pairs, d.send_pairs);
  s.call.work->statistics_bytes += home.numel();
  s.call.work->cached_pairs += cached.sum().item<std::int64_t>();
  const auto first = static_cast<std::size_t>(chunk.tokens.begin * s.top_k);
  std::size_t next = 0;
  const auto* bit = home.const_data_ptr<std::uint8_t>();
  for (std::size_t rank = 0; rank < chunk.pairs.per_rank.size(); ++rank) {
    for (std::int64_t i = 0; i < chunk.pairs.per_rank[rank]; ++i, ++next) {
      if (bit[next] != 0) {
        s.home[first + static_cast<std::size_t>(chunk.pairs.pair[next])] =
            static_cast<std::int32_t>(rank);
      }
    }
  }
}

// What the backward pass needs of g, u and x, once the statistics are made.
void keep_activations(ExpertsState& s, Chunk& chunk, Wire& wire, const at::Tensor& a) {
  std::span<const std::uint8_t> listed(s.call.listed);
  if (!listed.empty()) {
    listed = listed.subspan(static_cast<std::size_t>(chunk.tokens.begin * s.top_k),
                            static_cast<std::size_t>(chunk.tokens.size() * s.top_k));
  }
  if (!s.keeps_activations()) {
    chunk.gate_up.reset();
  } else if (s.caches()) {
    cache_likely(s, chunk, wire, a, listed);
  } else if (s.selects() && !s.oracle() && !listed.empty()) {
    // The pairs that are not on the shortlist have no backward pass.
    keep_flagged(chunk, flags_at_destination(wire, chunk, listed));
  }
}

// Of the indices, a backward pass with a dispatch of its own needs little.
void trim(const ExpertsState& s, Chunk& chunk) {
  if (s.call.backward && (!s.selects() || s.oracle())) {
    return;
  }
  Dispatch& d = chunk.dispatch;
  d.row_token = d.sent_row_pairs = d.sent_row_begin = d.token_rows = d.token_begin = at::Tensor();
  d.arrival = d.row_pairs = d.row_begin = at::Tensor();
  chunk.gates.reset();
  if (!s.keeps_activations()) {
    d.place = d.row = at::Tensor();
  }
}

at::Tensor forward_chunk(ExpertsState& s, Chunk& chunk, Wire& wire, const plan::Split& split,
                         const at::Tensor& all_x, const at::Tensor& all_gates) {
  const at::Tensor x = all_x.slice(0, chunk.tokens.begin, chunk.tokens.end);
  const at::Tensor gates = all_gates.slice(0, chunk.tokens.begin, chunk.tokens.end).reshape({-1});
  chunk.dispatch = wire.timed([&] {
    return make_dispatch(*s.call.communicator, chunk.pairs, x.size(0), static_cast<int>(s.top_k),
                         split, s.slots);
  });
  const Dispatch& d = chunk.dispatch;

  chunk.rows = wire.send(x.index_select(0, d.row_token), d.send_rows, d.receive_rows);
  const at::Tensor sent_gates = gates.index_select(0, d.pair);
  chunk.gates = wire.send(sent_gates, d.send_pairs, d.receive_pairs).index_select(0, d.arrival);

  at::Tensor pairs_x = chunk.rows.index_select(0, d.row);
  if (!s.keeps_activations()) {
    chunk.rows.reset();
  }
  chunk.gate_up = grouped_linear(pairs_x, s.gate_up_weight(), d.groups);
  pairs_x.reset();
  at::Tensor a = gated(chunk.gate_up);
  at::Tensor statistics;
  const bool counts = s.call.backward && s.scores() && plan::statistics_of(s.call.options) > 0;
  if (counts) {
    statistics = pair_statistics(s.call.options, a, chunk.gate_up, s.down_weight(), d.groups);
  }
  keep_activations(s, chunk, wire, a);
  at::Tensor y = grouped_linear(a, s.down_weight(), d.groups);
  a.reset();
  if (counts) {
    add_output_norms(s.call.options, y, statistics);
    const at::Tensor home = bring_home(wire, statistics, d, gates.numel());
    statistics.reset();
    if (s.chunks.size() == 1) {
      s.statistics = home;
    } else {
      s.statistics.slice(0, chunk.tokens.begin * s.top_k, chunk.tokens.end * s.top_k).copy_(home);
    }
    s.call.work->statistics_bytes += static_cast<std::int64_t>(home.nbytes());
  }
  const at::Tensor returned = combine(s, chunk, wire, std::move(y), sent_gates);
  return sum_rows(returned, d.token_rows, d.token_begin, {});
}

void count_chunk(cost::LayerWork& work, const ExpertsState& s, const Dispatch& d) {
  add_counts(work.forward_rows, d.send_rows);
  add_counts(work.forward_pairs, d.send_pairs);
  add_rows(work.forward_gemm_rows, d.groups);
  add_counts(work.combine_rows, s.keeps_outputs() ? d.send_pairs : d.send_rows);
  work.forward_bytes += d.index_bytes;
}

}  // namespace

void add_counts(std::vector<std::int32_t>& sum, const std::vector<std::int64_t>& counts) {
  sum.resize(counts.size(), 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum[i] += static_cast<std::int32_t>(counts[i]);
  }
}

void add_rows(std::vector<std::int32_t>& sum, const std::vector<Group>& groups) {
  sum.resize(groups.size(), 0);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    sum[i] += static_cast<std::int32_t>(groups[i].end - groups[i].begin);
  }
}

at::Tensor experts_forward(ExpertsState& s, const at::Tensor& x, const at::Tensor& gates) {
  cost::LayerWork& work = *s.call.work;
  comm::Communicator& comm = *s.call.communicator;
  const plan::RankPlan& plan = *s.call.plan;
  const CpuStopwatch cpu;
  Wire wire(comm);

  s.pairs =
      route_pairs(s.call.experts, plan.cluster.experts, plan.sends, comm.size(), s.call.listed);
  if (s.caches()) {
    s.room = CacheRoom(plan, s.slots);
    s.home.assign(s.call.experts.size(), -1);
  }
  s.chunks.resize(static_cast<std::size_t>(plan.chunks));
  std::vector<RoutedPairs> pairs = chunk_pairs(s.pairs, x.size(0), s.top_k, plan.chunks);
  std::vector<plan::Split> arriving;
  at::Tensor out;
  if (plan.chunks > 1) {
    arriving = wire.timed([&] {
      return arriving_routes(comm, pairs, s.call.experts, x.size(0), s.top_k, plan.sends,
                             plan.receives, work.forward_bytes);
    });
    out = at::empty_like(x);
    if (s.scores()) {
      s.statistics = at::empty({gates.numel(), plan::statistics_of(s.call.options)}, at::kFloat);
    }
  }
  for (std::size_t c = 0; c < s.chunks.size(); ++c) {
    Chunk& chunk = s.chunks[c];
    chunk.tokens = chunk_tokens(x.size(0), static_cast<int>(c), plan.chunks);
    chunk.pairs = std::move(pairs[c]);
    const at::Tensor part =
        forward_chunk(s, chunk, wire, plan.chunks > 1 ? arriving[c] : plan.receives, x, gates);
    if (plan.chunks > 1) {
      out.slice(0, chunk.tokens.begin, chunk.tokens.end).copy_(part);
    } else {
      out = part;
    }
    count_chunk(work, s, chunk.dispatch);
    trim(s, chunk);
  }
  if (s.call.backward) {
    s.x = x.detach();
    if (s.scores()) {
      s.source_gates = gates.detach();
      s.out = out;
    }
  } else {  // the counts of a backward pass that does not come
    work.backward_rows.assign(work.forward_rows.size(), 0);
    work.backward_pairs = work.backward_rows;
    work.backward_gemm_rows.assign(work.forward_gemm_rows.size(), 0);
  }
  work.recompute = s.recomputes();
  work.chunks = plan.chunks;
  work.forward_bytes += wire.bytes();
  work.exchange_seconds += wire.time().wall;
  work.forward_cpu_seconds += cpu.seconds() - wire.time().cpu;
  return out;
}

}  // namespace lrmoe::moe
