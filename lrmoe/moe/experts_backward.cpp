// Backward pass of the routed experts: score, select, compact, grouped GEMMs of
// the kept pairs, return. Keep-all takes the same way without the first two.
#include <algorithm>

#include "lrmoe/base/hash.h"
#include "lrmoe/moe/experts_state.h"
#include "lrmoe/moe/grouped.h"
#include "lrmoe/moe/live_pairs.h"
#include "lrmoe/moe/router_gradient.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/moe/selection.h"
#include "lrmoe/moe/wire.h"

namespace lrmoe::moe {
namespace {

// Pairs on their way back, lined up at the destination. Keep-all: the forward
// pass's own dispatch and gates.
struct Backward {
  Dispatch dispatch;
  at::Tensor weight;       // [T * k] 1/pi at the source, 0: not kept; undefined: all kept
  at::Tensor coefficient;  // [K] w p, in destination order
  at::Tensor weights;      // [K] w; undefined: all 1
  at::Tensor place;        // [K] the pair's place in the forward dispatch; undefined: its own
};

// S of every pair: delta visits all pairs' experts (metric exact, an oracle).
at::Tensor exact_scores(const ExpertsState& s, Wire& wire, const at::Tensor& delta) {
  const Dispatch& d = s.dispatch;
  const at::Tensor rows =
      wire.send(delta.index_select(0, d.row_token), d.send_rows, d.receive_rows);
  const at::Tensor deltas = rows.index_select(0, d.row);
  const at::Tensor r = grouped_linear_input(deltas, s.down_weight(), d.groups);
  const at::Tensor square =
      exact_square(deltas, s.rows.index_select(0, d.row), gated(s.gate_up), r, s.gate_up);
  const at::Tensor score = square.sqrt() * s.gates.to(at::kFloat);
  const at::Tensor home = wire.send(score.index_select(0, d.place), d.receive_pairs, d.send_pairs);
  return at::zeros({s.source_gates.numel()}, home.options()).index_copy_(0, d.pair, home);
}

at::Tensor random_scores(const ExpertsState& s) {
  at::Tensor scores = at::ones({s.source_gates.numel()}, at::kFloat);
  if (s.call.options.mode == plan::SelectMode::top) {
    auto* data = scores.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < scores.numel(); ++i) {
      const auto bits =
          hash({static_cast<std::uint64_t>(s.call.plan->draw),
                static_cast<std::uint64_t>(s.slots.rank), static_cast<std::uint64_t>(i)});
      data[i] = static_cast<float>((bits >> 40) + 1);
    }
  }
  return scores;
}

// Pairs outside a shortlist by output score 0: the share of this rank's pairs
// that add least to their token's output. (A shortlist by gate was known to the
// planner: its cells hold the listed pairs only.)
at::Tensor shortlisted(const ExpertsState& s, const at::Tensor& scores) {
  if (!needs_output_norm(s.call.options)) {
    return scores;
  }
  const at::Tensor added =
      s.source_gates.flatten().to(at::kFloat) * s.statistics.select(1, s.statistics.size(1) - 1);
  const at::Tensor order = std::get<1>(at::sort(added, /*stable=*/true, 0, /*descending=*/true));
  return scores.index_fill(0, order.slice(0, listed_pairs(s.call.options, scores.numel())), 0.0);
}

at::Tensor score(const ExpertsState& s, Wire& wire, const at::Tensor& delta) {
  const auto& options = s.call.options;
  at::Tensor scores;
  if (options.metric == plan::Metric::exact) {
    scores = exact_scores(s, wire, delta);
  } else if (options.metric == plan::Metric::random) {
    scores = random_scores(s);
  } else {
    scores = score_pairs(options.metric, s.source_gates, delta, s.x, s.statistics, s.out);
  }
  return shortlisted(s, scores).contiguous();
}

// The cell of every pair of this source, -1 for pairs that were not routed.
std::vector<std::int32_t> cells_of_pairs(const ExpertsState& s, std::span<const plan::Cell> cells) {
  std::vector<std::int32_t> first(static_cast<std::size_t>(s.call.plan->cluster.experts), -1);
  for (std::size_t c = cells.size(); c-- > 0;) {
    first[static_cast<std::size_t>(cells[c].expert)] = static_cast<std::int32_t>(c);
  }
  std::vector<std::int32_t> cell_of_pair(s.call.experts.size(), -1);
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < s.pairs.per_rank.size(); ++rank) {
    for (std::int64_t i = 0; i < s.pairs.per_rank[rank]; ++i, ++next) {
      const auto pair = static_cast<std::size_t>(s.pairs.pair[next]);
      if (s.call.plan->listed && s.call.listed[pair] == 0) {
        continue;
      }
      auto cell = first[static_cast<std::size_t>(s.call.experts[pair])];
      while (cells[static_cast<std::size_t>(cell)].rank >= 0 &&
             cells[static_cast<std::size_t>(cell)].rank != static_cast<std::int32_t>(rank)) {
        ++cell;
      }
      cell_of_pair[pair] = cell;
    }
  }
  return cell_of_pair;
}

std::span<const float> values_of(const at::Tensor& scores) {
  return {scores.const_data_ptr<float>(), static_cast<std::size_t>(scores.numel())};
}

// What the next steps' plans buy from.
void learn(const ExpertsState& s, const at::Tensor& scores) {
  const auto values = values_of(scores);
  for (const auto pair : s.pairs.pair) {
    const auto i = static_cast<std::size_t>(pair);
    if (s.call.listed.empty() || s.call.listed[i] != 0) {
      s.call.histogram->add(static_cast<int>(s.call.experts[i]), values[i]);
    }
  }
}

std::vector<float> select(const ExpertsState& s, const at::Tensor& scores) {
  const std::span<const plan::Cell> cells = s.call.plan->cells;
  return select_pairs(cells, s.call.plan->draw, cells_of_pairs(s, cells), values_of(scores),
                      s.call.options.mode);
}

// Activation mode keep: kept pairs return to where their forward pass ran.
// `places`: each one's position among the forward pairs of its rank.
RoutedPairs kept_at_home(const ExpertsState& s, const std::vector<float>& weight,
                         std::vector<std::int32_t>& places) {
  RoutedPairs kept;
  std::size_t next = 0;
  for (const auto count : s.pairs.per_rank) {
    const auto before = static_cast<std::int64_t>(kept.pair.size());
    for (std::int64_t i = 0; i < count; ++i, ++next) {
      if (weight[static_cast<std::size_t>(s.pairs.pair[next])] > 0.0F) {
        kept.pair.push_back(s.pairs.pair[next]);
        places.push_back(static_cast<std::int32_t>(i));
      }
    }
    kept.per_rank.push_back(static_cast<std::int64_t>(kept.pair.size()) - before);
  }
  return kept;
}

// Activation mode recompute: any instance, as the plan's backward split says.
RoutedPairs kept_anywhere(const ExpertsState& s, const std::vector<float>& weight) {
  const plan::RankPlan& plan = *s.call.plan;
  std::vector<std::int64_t> experts = s.call.experts;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (weight[i] == 0.0F) {
      experts[i] = plan.cluster.experts;
    }
  }
  return route_pairs(experts, plan.cluster.experts, plan.kept_sends, plan.cluster.ranks);
}

// Places in the forward dispatch of the pairs that arrived: the source numbered
// them within its own block of forward arrivals.
at::Tensor forward_places(const ExpertsState& s, Wire& wire, const Dispatch& back,
                          const std::vector<std::int32_t>& places) {
  at::Tensor arrived =
      wire.send(at::tensor(places, at::kInt), back.send_pairs, back.receive_pairs).to(at::kLong);
  std::int64_t from = 0, base = 0;
  for (std::size_t r = 0; r < back.receive_pairs.size(); ++r) {
    arrived.narrow(0, from, back.receive_pairs[r]).add_(base);
    from += back.receive_pairs[r];
    base += s.dispatch.receive_pairs[r];
  }
  return s.dispatch.place.index_select(0, arrived.index_select(0, back.arrival));
}

Backward send_kept(const ExpertsState& s, Wire& wire, const std::vector<float>& weight) {
  Backward b;
  std::vector<std::int32_t> places;
  const RoutedPairs kept =
      s.recomputes() ? kept_anywhere(s, weight) : kept_at_home(s, weight, places);
  b.dispatch = wire.timed([&] {
    return make_dispatch(*s.call.communicator, kept, s.x.size(0), static_cast<int>(s.top_k),
                         s.call.plan->kept_receives, s.slots);
  });
  const Dispatch& d = b.dispatch;
  b.weight = at::tensor(weight, at::kFloat).to(s.gates.scalar_type());
  const at::Tensor w = b.weight.index_select(0, d.pair);
  const at::Tensor p = s.source_gates.flatten().index_select(0, d.pair);
  const at::Tensor numbers =
      wire.send(at::stack({w * p, w}, 1), d.send_pairs, d.receive_pairs).index_select(0, d.arrival);
  b.coefficient = numbers.select(1, 0).contiguous();
  b.weights = numbers.select(1, 1).contiguous();
  if (!s.recomputes()) {
    b.place = forward_places(s, wire, d, places);
  }
  return b;
}

at::Tensor pick(const at::Tensor& values, const at::Tensor& index) {
  return index.defined() ? values.index_select(0, index) : values;
}

// Leaves the pairs that have something to add.
void drop_dead(Backward& b, const LivePairs& live) {
  if (live.index.defined()) {
    b.coefficient = b.coefficient.index_select(0, live.index);
    b.weights = b.weights.defined() ? b.weights.index_select(0, live.index) : b.weights;
    b.place = b.place.defined() ? b.place.index_select(0, live.index) : live.index;
  }
}

// Sums of S^2 over kept pairs: what sampling adds, and what all pairs have.
void note_variance(cost::LayerWork& work, const Backward& b, const at::Tensor& square) {
  const at::Tensor w = b.weights.to(at::kFloat);
  const at::Tensor scaled = square * b.coefficient.to(at::kFloat).square();  // w^2 S^2
  work.added_variance += (scaled * (1 - 1 / w)).sum(at::kDouble).item<double>();
  work.total_variance += (scaled / w).sum(at::kDouble).item<double>();
}

// dp [T, k] from those of the kept pairs.
at::Tensor all_gate_gradients(const ExpertsState& s, Wire& wire, const Backward& b,
                              const at::Tensor& dp, const at::Tensor& delta) {
  const std::vector<std::int64_t> shape{delta.size(0), s.top_k};
  if (s.keeps_outputs()) {
    const Dispatch& d = s.dispatch;
    const at::Tensor tokens = d.pair.div(s.top_k, "floor");
    const at::Tensor exact =
        (s.outputs * delta.index_select(0, tokens)).sum(1, false, s.gates.scalar_type());
    return at::zeros({delta.size(0) * s.top_k}, exact.options())
        .index_copy_(0, d.pair, exact)
        .view(shape);
  }
  const Dispatch& d = b.dispatch;
  const at::Tensor home = wire.send(dp.index_select(0, d.place), d.receive_pairs, d.send_pairs);
  const at::Tensor of_pairs =
      at::zeros({delta.size(0) * s.top_k}, home.options()).index_copy_(0, d.pair, home).view(shape);
  if (!s.selects()) {
    return of_pairs;
  }
  const at::Tensor routed =
      at::zeros({delta.size(0) * s.top_k}, home.options()).index_fill_(0, s.dispatch.pair, 1.0);
  const at::Tensor delta_o = (delta * s.out).sum(1, false, home.scalar_type());
  return gate_gradient(s.call.options.router_gradient, s.source_gates, of_pairs,
                       b.weight.view(shape), routed.view(shape), delta_o);
}

}  // namespace

ExpertsGradients experts_backward(ExpertsState& s, const at::Tensor& delta) {
  cost::LayerWork& work = *s.call.work;
  const CpuStopwatch cpu;
  Wire wire(*s.call.communicator);

  const Stopwatch watch;
  at::Tensor scores;
  if (s.scores()) {
    scores = score(s, wire, delta);
    work.scored_pairs = scores.numel();
    if (s.call.histogram) {
      learn(s, scores);
    }
    if (s.call.watch_scores) {
      s.call.watch_scores(values_of(scores));
    }
  }
  Backward b;
  if (s.selects()) {
    const std::vector<float> weight = select(s, scores);
    work.select_seconds += watch.seconds();
    b = send_kept(s, wire, weight);
  } else {
    b.dispatch = s.dispatch;
    b.dispatch.index_bytes = 0;  // nothing new was sent
    b.coefficient = s.gates;
  }
  const Dispatch& d = b.dispatch;  // of the pairs that travel

  const at::Tensor sent = delta.index_select(0, d.row_token);
  const at::Tensor delta_rows = wire.send(sent, d.send_rows, d.receive_rows);
  const LivePairs live = live_pairs(d, delta_rows, s.call.zero_deltas);  // those to compute
  drop_dead(b, live);
  const at::Tensor deltas = delta_rows.index_select(0, live.row);
  at::Tensor x_rows, x, gate_up;
  if (s.recomputes()) {
    x_rows = wire.send(s.x.index_select(0, d.row_token), d.send_rows, d.receive_rows);
    x = x_rows.index_select(0, live.row);
    gate_up = grouped_linear(x, s.gate_up_weight(), live.groups);
  } else {
    const at::Tensor kept = s.compact.defined() ? s.compact.index_select(0, b.place) : b.place;
    x = s.rows.index_select(0, pick(s.compact.defined() ? s.compact_row : s.dispatch.row, kept));
    gate_up = pick(s.gate_up, kept);
  }

  const at::Tensor a = gated(gate_up);
  const at::Tensor r = grouped_linear_input(deltas, s.down_weight(), live.groups);
  if (s.selects()) {
    note_variance(work, b, exact_square(deltas, x, a, r, gate_up));
  }
  const at::Tensor dp = (r * a).sum(1, false, b.coefficient.scalar_type());
  const at::Tensor c = b.coefficient.to(a.scalar_type()).unsqueeze(1);

  ExpertsGradients g;
  const auto slots = s.slots.gate_up.size(0);
  g.down = grouped_linear_weight(deltas, a * c, slots, live.groups);
  const at::Tensor d_gate_up = gated_backward(r * c, gate_up);
  g.gate_up = grouped_linear_weight(d_gate_up, x, slots, live.groups);
  const at::Tensor dx_pairs = grouped_linear_input(d_gate_up, s.gate_up_weight(), live.groups);
  const at::Tensor dx_rows = sum_rows(dx_pairs, live.row_pairs, live.row_begin, {});
  g.x = sum_rows(wire.send(dx_rows, d.receive_rows, d.send_rows), d.token_rows, d.token_begin, {});
  g.gates = all_gate_gradients(s, wire, b, live.spread(dp), delta);

  work.backward_rows = to_int32(d.send_rows);
  work.backward_pairs = to_int32(d.send_pairs);
  work.backward_gemm_rows = group_rows(live.groups);
  work.zero_pairs = d.row.numel() - live.row.numel();
  work.backward_bytes = wire.bytes() + d.index_bytes;
  work.memory_peak_bytes =
      std::max(work.memory_peak_bytes,
               instance_bytes(s.slots) + bytes_of(s.rows, s.gate_up, s.gates, s.out, s.statistics,
                                                  s.outputs, sent, delta_rows, deltas, x_rows, x, a,
                                                  r, d_gate_up, dx_pairs, dx_rows));
  work.exchange_seconds += wire.time().wall;
  work.backward_cpu_seconds += cpu.seconds() - wire.time().cpu;
  s.x = s.rows = s.gate_up = s.gates = s.out = s.outputs = s.statistics = at::Tensor();
  return g;
}

}  // namespace lrmoe::moe
