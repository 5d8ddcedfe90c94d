// Backward pass of the routed experts: compact, grouped GEMMs of the kept pairs,
// return; chunk after chunk. Keep-all takes the same way with the forward pass's
// own dispatch. A tensor goes as soon as nothing needs it any more: what is alive
// when is counted in docs/memory.md and in plan/memory.cpp.
#include <utility>

#include "lrmoe/moe/experts_select.h"
#include "lrmoe/moe/experts_state.h"
#include "lrmoe/moe/grouped.h"
#include "lrmoe/moe/live_pairs.h"
#include "lrmoe/moe/router_gradient.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/moe/wire.h"

namespace lrmoe::moe {
namespace {

// Leaves the pairs that have something to add.
void drop_dead(Kept& kept, const LivePairs& live) {
  if (live.index.defined()) {
    const auto part = [&](const at::Tensor& t) {
      return t.defined() ? t.index_select(0, live.index) : t;
    };
    kept.coefficient = part(kept.coefficient);
    kept.weights = part(kept.weights);
    kept.place = kept.place.defined() ? part(kept.place) : live.index;
  }
}

// Sums of S^2 over kept pairs: what sampling adds, and what all pairs have.
void note_variance(cost::LayerWork& work, const Kept& kept, const at::Tensor& square) {
  const at::Tensor w = kept.weights.to(at::kFloat);
  const at::Tensor scaled = square * kept.coefficient.to(at::kFloat).square();  // w^2 S^2
  work.added_variance += (scaled * (1 - 1 / w)).sum(at::kDouble).item<double>();
  work.total_variance += (scaled / w).sum(at::kDouble).item<double>();
}

// dp [tokens, k] of a chunk from those of its kept pairs.
at::Tensor all_gate_gradients(const ExpertsState& s, const Chunk& chunk, Wire& wire,
                              const Selection& selection, const Kept& kept, const at::Tensor& dp,
                              const at::Tensor& delta) {
  const std::int64_t pairs = delta.size(0) * s.top_k;
  const std::vector<std::int64_t> shape{delta.size(0), s.top_k};
  if (s.keeps_outputs()) {
    const at::Tensor& pair = chunk.dispatch.pair;
    const at::Tensor tokens = pair.div(s.top_k, "floor");
    at::Tensor exact = at::empty({pair.numel()}, dp.options());
    in_blocks(pair.numel(), [&](std::int64_t begin, std::int64_t end) {
      const at::Tensor of_pairs = delta.index_select(0, tokens.slice(0, begin, end));
      exact.slice(0, begin, end)
          .copy_((chunk.outputs.slice(0, begin, end) * of_pairs).sum(1, false, dp.scalar_type()));
    });
    return at::zeros({pairs}, exact.options()).index_copy_(0, pair, exact).view(shape);
  }
  const Dispatch& d = kept.dispatch;
  const at::Tensor home = wire.send(dp.index_select(0, d.place), d.receive_pairs, d.send_pairs);
  const at::Tensor of_pairs =
      at::zeros({pairs}, home.options()).index_copy_(0, d.pair, home).view(shape);
  if (!s.selects()) {
    return of_pairs;
  }
  const at::Tensor routed =
      at::zeros({pairs}, home.options()).index_fill_(0, chunk.dispatch.pair, 1.0);
  const auto part = [&](const at::Tensor& t) {
    return t.slice(0, chunk.tokens.begin, chunk.tokens.end);
  };
  return gate_gradient(s.call.options.router_gradient, part(s.source_gates), of_pairs,
                       kept.weight.view(shape), routed.view(shape), part(selection.delta_o));
}

// x, g and u of the pairs that a chunk's backward pass computes.
struct Inputs {
  at::Tensor rows;     // [N, d] x of each row that is there
  at::Tensor row;      // [K] the row of each pair
  at::Tensor gate_up;  // [K, 2n]
};

Inputs kept_inputs(Chunk& chunk, const at::Tensor& place) {
  Inputs in;
  const bool compact = chunk.compact.defined();
  if (!place.defined()) {  // every pair, in its own place
    in = {std::move(chunk.rows), chunk.dispatch.row, std::move(chunk.gate_up)};
  } else {
    const at::Tensor there = compact ? chunk.compact.index_select(0, place) : place;
    in.gate_up = chunk.gate_up.index_select(0, there);
    in.row = (compact ? chunk.compact_row : chunk.dispatch.row).index_select(0, there);
    in.rows = std::move(chunk.rows);
  }
  chunk.rows.reset();
  chunk.gate_up.reset();
  chunk.compact = chunk.compact_row = at::Tensor();
  return in;
}

Inputs recomputed_inputs(const ExpertsState& s, Wire& wire, const at::Tensor& x, const Dispatch& d,
                         const LivePairs& live) {
  Inputs in;
  in.rows = wire.send(x.index_select(0, d.row_token), d.send_rows, d.receive_rows);
  in.row = live.row;
  in.gate_up = grouped_linear(in.rows.index_select(0, live.row), s.gate_up_weight(), live.groups);
  return in;
}

// A flag per row that one of the flagged pairs needs: [rows] bool.
at::Tensor flag_rows(const at::Tensor& row_of_pair, const at::Tensor& pairs, std::int64_t rows) {
  return at::zeros({rows}, at::kBool).index_fill_(0, row_of_pair.index_select(0, pairs), true);
}

std::vector<std::int64_t> count_by_rank(const at::Tensor& flags,
                                        const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> counts;
  std::int64_t from = 0;
  for (const auto n : rows) {
    counts.push_back(flags.narrow(0, from, n).sum().item<std::int64_t>());
    from += n;
  }
  return counts;
}

// Activation mode quota: what is cached comes from the cache, x of the others comes
// again (one row per token and rank) and their g, u are made again. travelled: the
// places of all pairs that came, whatever lives of them.
Inputs cached_inputs(const ExpertsState& s, Chunk& chunk, Wire& wire, const at::Tensor& x,
                     const Kept& kept, const LivePairs& live, const at::Tensor& travelled) {
  const Dispatch& d = kept.dispatch;
  const at::Tensor hit = (kept.place >= 0).nonzero().flatten();
  const at::Tensor miss = (kept.place < 0).nonzero().flatten();
  // At the source: rows with a pair that is computed again.
  const at::Tensor again = kept.sent_again.nonzero().flatten();
  const at::Tensor in_row = d.sent_row_begin.diff();
  const at::Tensor sent_row = at::empty_like(d.sent_row_pairs)
                                  .index_copy_(0, d.sent_row_pairs, at::repeat_interleave(in_row));
  const at::Tensor out_flags = flag_rows(sent_row, again, d.row_token.numel());
  const at::Tensor in_flags =
      flag_rows(d.row, (travelled < 0).nonzero().flatten(), d.row_begin.numel() - 1);
  const at::Tensor sent =
      x.index_select(0, d.row_token.index_select(0, out_flags.nonzero().flatten()));
  const std::vector<std::int64_t> leaving = count_by_rank(out_flags, d.send_rows);
  const at::Tensor arrived = wire.send(sent, leaving, count_by_rank(in_flags, d.receive_rows));
  add_counts(s.call.work->again_rows, leaving);

  Inputs in;
  in.gate_up = at::empty({kept.place.numel(), chunk.gate_up.size(1)}, x.options());
  in.row = at::empty_like(kept.place);
  const at::Tensor places = kept.place.index_select(0, hit);
  const at::Tensor there = chunk.compact.defined() ? chunk.compact.index_select(0, places) : places;
  in.gate_up.index_copy_(0, hit, chunk.gate_up.index_select(0, there));
  in.row.index_copy_(
      0, hit,
      (chunk.compact.defined() ? chunk.compact_row : chunk.dispatch.row).index_select(0, there));
  chunk.gate_up.reset();

  const at::Tensor new_row = at::cumsum(in_flags, 0, at::kLong).sub_(1);
  const at::Tensor miss_row = new_row.index_select(0, live.row.index_select(0, miss));
  in.row.index_copy_(0, miss, miss_row + chunk.rows.size(0));
  std::vector<Group> groups;  // of the pairs computed again, which stay in order
  const at::Tensor ends = at::cumsum(kept.place < 0, 0, at::kLong);
  std::int64_t begin = 0;
  for (const Group& group : live.groups) {
    const std::int64_t end =
        group.end == group.begin ? begin : ends[group.end - 1].item<std::int64_t>();
    groups.push_back({group.slot, begin, end});
    begin = end;
  }
  add_rows(s.call.work->again_gemm_rows, groups);
  in.gate_up.index_copy_(
      0, miss, grouped_linear(arrived.index_select(0, miss_row), s.gate_up_weight(), groups));
  in.rows = at::cat({chunk.rows, arrived});
  chunk.rows.reset();
  chunk.compact = chunk.compact_row = at::Tensor();
  return in;
}

struct Weights {
  at::Tensor gate_up, down;
  std::vector<bool> gate_up_written, down_written;
};

// One chunk: its gradients of x [tokens, d] and of the gates [tokens, k].
struct ChunkGradients {
  at::Tensor x, gates;
};
ChunkGradients backward_chunk(ExpertsState& s, std::size_t index, Wire& wire,
                              const Selection& selection, const at::Tensor& all_delta,
                              Weights& weights) {
  cost::LayerWork& work = *s.call.work;
  Chunk& chunk = s.chunks[index];
  const at::Tensor delta = all_delta.slice(0, chunk.tokens.begin, chunk.tokens.end);
  const at::Tensor x = s.x.slice(0, chunk.tokens.begin, chunk.tokens.end);
  Kept kept;
  if (s.selects()) {
    kept = send_kept(s, wire, selection, index);
  } else {
    kept.dispatch = chunk.dispatch;
    kept.dispatch.index_bytes = 0;  // nothing new was sent
    kept.coefficient = chunk.gates;
  }
  const Dispatch& d = kept.dispatch;  // of the pairs that travel
  at::Tensor rows = wire.send(delta.index_select(0, d.row_token), d.send_rows, d.receive_rows);
  const LivePairs live = live_pairs(d, rows, s.call.zero_deltas);  // those to compute
  const at::Tensor travelled = kept.place;
  drop_dead(kept, live);
  Inputs in = s.recomputes() ? recomputed_inputs(s, wire, x, d, live)
              : s.caches()   ? cached_inputs(s, chunk, wire, x, kept, live, travelled)
                             : kept_inputs(chunk, kept.place);

  at::Tensor deltas = rows.index_select(0, live.row);
  rows.reset();
  at::Tensor a = gated(in.gate_up);
  at::Tensor r = grouped_linear_input(deltas, s.down_weight(), live.groups);
  if (s.selects()) {
    const at::Tensor x_square = squares(in.rows).index_select(0, in.row);
    note_variance(work, kept, exact_square(deltas, x_square, a, r, in.gate_up));
  }
  const at::Tensor dp = row_products(r, a, kept.coefficient.scalar_type());
  const at::Tensor c = kept.coefficient.to(a.scalar_type()).unsqueeze(1);

  if (s.wants_weights) {
    grouped_linear_weight(weights.down, deltas, a.mul_(c), live.groups, weights.down_written);
  }
  a.reset();
  deltas.reset();
  gated_backward_in_place(r.mul_(c), in.gate_up);
  r.reset();
  if (s.wants_weights) {
    at::Tensor pairs_x = in.rows.index_select(0, in.row);
    in.rows.reset();
    grouped_linear_weight(weights.gate_up, in.gate_up, pairs_x, live.groups,
                          weights.gate_up_written);
  }
  in.rows.reset();
  at::Tensor pairs_dx = grouped_linear_input(in.gate_up, s.gate_up_weight(), live.groups);
  in.gate_up.reset();
  at::Tensor dx_rows = sum_rows(pairs_dx, live.row_pairs, live.row_begin, {});
  pairs_dx.reset();
  const at::Tensor home = wire.send(dx_rows, d.receive_rows, d.send_rows);
  dx_rows.reset();
  ChunkGradients g;
  g.x = sum_rows(home, d.token_rows, d.token_begin, {});
  g.gates = all_gate_gradients(s, chunk, wire, selection, kept, live.spread(dp), delta);

  add_counts(work.backward_rows, d.send_rows);
  add_counts(work.backward_pairs, d.send_pairs);
  add_rows(work.backward_gemm_rows, live.groups);
  work.zero_pairs += d.row.numel() - live.row.numel();
  work.backward_bytes += d.index_bytes;
  chunk = Chunk();
  return g;
}

// Slots without pairs have a gradient too: zero.
void fill_up(at::Tensor& gradient, const std::vector<bool>& written) {
  for (std::size_t slot = 0; slot < written.size(); ++slot) {
    if (!written[slot]) {
      gradient.select(0, static_cast<std::int64_t>(slot)).zero_();
    }
  }
}

}  // namespace

ExpertsGradients experts_backward(ExpertsState& s, const at::Tensor& delta) {
  cost::LayerWork& work = *s.call.work;
  const CpuStopwatch cpu;
  Wire wire(*s.call.communicator);
  const Selection selection = select(s, wire, delta);

  const auto slots = static_cast<std::size_t>(s.slots.gate_up.size(0));
  Weights weights{{}, {}, std::vector<bool>(slots, false), std::vector<bool>(slots, false)};
  if (s.wants_weights) {
    weights.gate_up = at::empty_like(s.gate_up_weight());
    weights.down = at::empty_like(s.down_weight());
  }
  ExpertsGradients g;
  if (s.chunks.size() > 1) {
    g.x = at::empty_like(s.x);
  }
  std::vector<at::Tensor> gates;
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    const Range tokens = s.chunks[i].tokens;
    ChunkGradients part = backward_chunk(s, i, wire, selection, delta, weights);
    if (s.chunks.size() > 1) {
      g.x.slice(0, tokens.begin, tokens.end).copy_(part.x);
    } else {
      g.x = std::move(part.x);
    }
    gates.push_back(std::move(part.gates));
  }
  g.gates = at::cat(gates);
  if (s.wants_weights) {
    fill_up(weights.gate_up, weights.gate_up_written);
    fill_up(weights.down, weights.down_written);
  }
  g.gate_up = std::move(weights.gate_up);
  g.down = std::move(weights.down);

  work.backward_bytes += wire.bytes();
  work.exchange_seconds += wire.time().wall;
  work.backward_cpu_seconds += cpu.seconds() - wire.time().cpu;
  s.x.reset();
  s.chunks.clear();
  return g;
}

}  // namespace lrmoe::moe
