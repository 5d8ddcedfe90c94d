#include "lrmoe/moe/experts_select.h"

#include "lrmoe/base/hash.h"
#include "lrmoe/moe/grouped.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/moe/selection.h"

namespace lrmoe::moe {
namespace {

// S of every pair: delta visits all pairs' experts (metric exact, an oracle).
at::Tensor exact_scores(const ExpertsState& s, Wire& wire, const at::Tensor& delta) {
  at::Tensor scores = at::zeros({s.source_gates.numel()}, at::kFloat);
  for (const Chunk& chunk : s.chunks) {
    const Dispatch& d = chunk.dispatch;
    const at::Tensor part = delta.slice(0, chunk.tokens.begin, chunk.tokens.end);
    const at::Tensor rows =
        wire.send(part.index_select(0, d.row_token), d.send_rows, d.receive_rows);
    const at::Tensor deltas = rows.index_select(0, d.row);
    const at::Tensor r = grouped_linear_input(deltas, s.down_weight(), d.groups);
    const at::Tensor square = exact_square(deltas, squares(chunk.rows).index_select(0, d.row),
                                           gated(chunk.gate_up), r, chunk.gate_up);
    const at::Tensor score = square.sqrt() * chunk.gates.to(at::kFloat);
    const at::Tensor home =
        wire.send(score.index_select(0, d.place), d.receive_pairs, d.send_pairs);
    scores.slice(0, chunk.tokens.begin * s.top_k).index_copy_(0, d.pair, home);
  }
  return scores;
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
  return scores.index_fill(0, order.slice(0, plan::shortlist_size(s.call.options, scores.numel())),
                           0.0);
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

std::vector<float> choose(const ExpertsState& s, const at::Tensor& scores) {
  const std::span<const plan::Cell> cells = s.call.plan->cells;
  const std::vector<std::int32_t> cell_of_pair =
      plan::cells_of_pairs(cells, s.call.plan->cluster.experts, s.call.experts, s.pairs,
                           s.call.plan->listed ? std::span<const std::uint8_t>(s.call.listed)
                                               : std::span<const std::uint8_t>());
  return select_pairs(cells, s.call.plan->draw, cell_of_pair, values_of(scores),
                      s.call.options.mode);
}

// By number of a chunk's pairs: their place among those that this source sent to the
// rank where their forward pass ran.
std::vector<std::int32_t> forward_place_of_pairs(const Chunk& chunk, std::int64_t top_k) {
  std::vector<std::int32_t> place(static_cast<std::size_t>(chunk.tokens.size() * top_k), -1);
  std::size_t next = 0;
  for (const auto count : chunk.pairs.per_rank) {
    for (std::int64_t i = 0; i < count; ++i, ++next) {
      place[static_cast<std::size_t>(chunk.pairs.pair[next])] = static_cast<std::int32_t>(i);
    }
  }
  return place;
}

// Activation modes recompute and quota: any instance, as the plan's backward split says.
RoutedPairs kept_anywhere(const ExpertsState& s, std::span<const float> weight) {
  const plan::RankPlan& plan = *s.call.plan;
  const std::vector<std::int64_t> experts =
      plan::kept_experts(s.call.experts, plan.cluster.experts, weight);
  const std::span<const plan::Route> routes = plan.kept_sends;
  return s.caches()
             ? route_cached(experts, plan.cluster.experts, routes, plan.cluster.ranks, s.home)
             : route_pairs(experts, plan.cluster.experts, routes, plan.cluster.ranks);
}

// Places in the forward dispatch of the pairs that arrived: the source numbered
// them within its own block of forward arrivals.
at::Tensor forward_places(const Chunk& chunk, Wire& wire, const Dispatch& back,
                          const std::vector<std::int32_t>& places) {
  at::Tensor arrived =
      wire.send(at::tensor(places, at::kInt), back.send_pairs, back.receive_pairs).to(at::kLong);
  std::int64_t from = 0, base = 0;
  for (std::size_t r = 0; r < back.receive_pairs.size(); ++r) {
    at::Tensor part = arrived.narrow(0, from, back.receive_pairs[r]);
    part.copy_(at::where(part < 0, part, part + base));
    from += back.receive_pairs[r];
    base += chunk.dispatch.receive_pairs[r];
  }
  arrived = arrived.index_select(0, back.arrival);
  const at::Tensor place = chunk.dispatch.place.index_select(0, arrived.clamp_min(0));
  return at::where(arrived < 0, arrived, place);
}

}  // namespace

Selection select(ExpertsState& s, Wire& wire, const at::Tensor& delta) {
  cost::LayerWork& work = *s.call.work;
  const Stopwatch watch;
  Selection selection;
  if (!s.scores()) {
    return selection;
  }
  const at::Tensor scores = score(s, wire, delta);
  work.scored_pairs = scores.numel();
  if (s.call.histogram) {
    learn(s, scores);
  }
  if (s.call.watch_scores) {
    s.call.watch_scores(values_of(scores));
  }
  if (s.selects()) {
    if (!s.keeps_outputs()) {
      selection.delta_o = row_products(delta, s.out, s.source_gates.scalar_type());
    }
    selection.weight = choose(s, scores);
    const RoutedPairs kept = s.recomputes() || s.caches()
                                 ? kept_anywhere(s, selection.weight)
                                 : plan::kept_in_place(s.pairs, selection.weight);
    const plan::RankPlan& plan = *s.call.plan;
    selection.kept = chunk_pairs(kept, s.x.size(0), s.top_k, plan.chunks);
    work.select_seconds += watch.seconds();
    if (plan.chunks > 1) {
      selection.arriving = wire.timed([&] {
        return arriving_routes(*s.call.communicator, selection.kept, s.call.experts, s.x.size(0),
                               s.top_k, plan.kept_sends, plan.kept_receives, work.backward_bytes);
      });
    }
  }
  s.out.reset();
  s.statistics.reset();
  return selection;
}

Kept send_kept(const ExpertsState& s, Wire& wire, const Selection& selection, std::size_t index) {
  const Chunk& chunk = s.chunks[index];
  const RoutedPairs& pairs = selection.kept[index];
  Kept kept;
  kept.dispatch = wire.timed([&] {
    return make_dispatch(
        *s.call.communicator, pairs, chunk.tokens.size(), static_cast<int>(s.top_k),
        selection.arriving.empty() ? s.call.plan->kept_receives : selection.arriving[index],
        s.slots);
  });
  const Dispatch& d = kept.dispatch;
  const std::int64_t first = chunk.tokens.begin * s.top_k;
  kept.weight = at::tensor(std::span<const float>(selection.weight)
                               .subspan(static_cast<std::size_t>(first),
                                        static_cast<std::size_t>(chunk.tokens.size() * s.top_k)),
                           at::kFloat)
                    .to(s.source_gates.scalar_type());
  const at::Tensor w = kept.weight.index_select(0, d.pair);
  const at::Tensor p = s.source_gates.flatten().slice(0, first).index_select(0, d.pair);
  const at::Tensor numbers =
      wire.send(at::stack({w * p, w}, 1), d.send_pairs, d.receive_pairs).index_select(0, d.arrival);
  kept.coefficient = numbers.select(1, 0).contiguous();
  kept.weights = numbers.select(1, 1).contiguous();
  if (!s.recomputes()) {
    const std::vector<std::int32_t> place_of_pair = forward_place_of_pairs(chunk, s.top_k);
    std::vector<std::int32_t> places;
    places.reserve(pairs.pair.size());
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
      for (std::int64_t i = 0; i < pairs.per_rank[rank]; ++i, ++next) {
        const auto pair = static_cast<std::size_t>(pairs.pair[next]);
        const bool there = !s.caches() || s.home[static_cast<std::size_t>(first) + pair] ==
                                              static_cast<std::int32_t>(rank);
        places.push_back(there ? place_of_pair[pair] : -1);
      }
    }
    if (s.caches()) {
      kept.sent_again = at::tensor(places, at::kInt) < 0;
    }
    kept.place = forward_places(chunk, wire, d, places);
  }
  return kept;
}

}  // namespace lrmoe::moe
