#include "lrmoe/replay/layer.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "lrmoe/base/error.h"
#include "lrmoe/base/stopwatch.h"
#include "lrmoe/plan/pairs.h"
#include "lrmoe/plan/selection.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/cache.h"

namespace lrmoe::replay {
namespace {

std::vector<std::int32_t> to_int32(std::span<const std::int64_t> values) {
  return {values.begin(), values.end()};
}

/// Rows per destination: a token counts once at each rank that gets a pair of it.
class RowCounter {
 public:
  RowCounter(std::int64_t tokens, int top_k)
      : top_k_(top_k), seen_(static_cast<std::size_t>(tokens), -1) {}

  std::vector<std::int32_t> count(const plan::RoutedPairs& pairs) {
    std::fill(seen_.begin(), seen_.end(), -1);
    std::vector<std::int32_t> rows;
    rows.reserve(pairs.per_rank.size());
    auto next = pairs.pair.begin();
    for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
      std::int32_t count = 0;
      for (const auto end = next + pairs.per_rank[rank]; next != end; ++next) {
        std::int32_t& seen = seen_[static_cast<std::size_t>(*next / top_k_)];
        count += seen == static_cast<std::int32_t>(rank) ? 0 : 1;
        seen = static_cast<std::int32_t>(rank);
      }
      rows.push_back(count);
    }
    return rows;
  }

 private:
  int top_k_;
  std::vector<std::int32_t> seen_;  // [T] the last rank that the token was counted for
};

/// [R][instances] pairs of every rank's grouped GEMM, in order of slot, from [E, R].
std::vector<std::vector<std::int32_t>> gemm_rows(const plan::Plan& plan, const plan::Loads& loads) {
  std::vector<std::vector<std::int32_t>> rows(static_cast<std::size_t>(plan.cluster.ranks));
  for (int r = 0; r < plan.cluster.ranks; ++r) {
    const auto slots = plan.placement.row(r);
    for (auto slot = slots.begin(); slot != slots.end(); ++slot) {
      if (*slot >= 0 && std::find(slots.begin(), slot, *slot) == slot) {
        rows[static_cast<std::size_t>(r)].push_back(static_cast<std::int32_t>(loads.at(*slot, r)));
      }
    }
  }
  return rows;
}

/// One source's kept pairs, by destination; its part of the variance. home: where its
/// pairs are cached, or empty.
plan::RoutedPairs select_kept(const plan::Plan& plan, int rank, const Source& source,
                              const plan::RoutedPairs& pairs, const LayerSettings& settings,
                              std::span<const std::int32_t> home, cost::LayerWork& work) {
  const std::vector<std::uint8_t> listed = shortlist(settings.options, source);
  const auto cells = plan::cells_of(plan, rank);
  const std::vector<std::int32_t> cell_of_pair =
      plan::cells_of_pairs(cells, plan.cluster.experts, source.experts, pairs,
                           plan.listed ? listed : std::vector<std::uint8_t>());
  const std::vector<float> weight =
      plan::select_pairs(cells, plan.draw, cell_of_pair, source.scores, settings.options.mode);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double w = weight[i];
    if (w > 0) {
      const double square = double{source.scores[i]} * source.scores[i];
      work.added_variance += square * w * (w - 1);
      work.total_variance += square * w;
    }
  }
  if (plan.activations != plan::Activations::keep) {
    const int experts = plan.cluster.experts;
    const int ranks = plan.cluster.ranks;
    const std::vector<std::int64_t> kept = plan::kept_experts(source.experts, experts, weight);
    const auto routes = plan::routes_of(plan.backward, rank);
    return home.empty() ? plan::route_pairs(kept, experts, routes, ranks)
                        : plan::route_cached(kept, experts, routes, ranks, home);
  }
  return plan::kept_in_place(pairs, weight);
}

/// The kept pairs that are not cached where they go; `again` [E, R] counts them.
plan::RoutedPairs not_cached(const plan::RoutedPairs& kept, const Source& source,
                             std::span<const std::int32_t> home, plan::Loads& again) {
  plan::RoutedPairs out;
  auto next = kept.pair.begin();
  for (std::size_t rank = 0; rank < kept.per_rank.size(); ++rank) {
    out.per_rank.push_back(0);
    for (const auto end = next + kept.per_rank[rank]; next != end; ++next) {
      const auto i = static_cast<std::size_t>(*next);
      if (home[i] != static_cast<std::int32_t>(rank)) {
        out.pair.push_back(*next);
        ++out.per_rank.back();
        ++again.at(static_cast<int>(source.experts[i]), static_cast<int>(rank));
      }
    }
  }
  return out;
}

void learn(const Source& source, const plan::RoutedPairs& pairs,
           std::span<const std::uint8_t> listed, plan::ScoreHistogram& histogram) {
  for (const std::int64_t pair : pairs.pair) {
    const auto i = static_cast<std::size_t>(pair);
    if (listed.empty() || listed[i] != 0) {
      histogram.add(static_cast<int>(source.experts[i]), source.scores[i]);
    }
  }
}

std::vector<cost::LayerWork> count(const plan::Strategy& strategy, const plan::Plan& plan,
                                   const Sources& sources, const LayerSettings& settings,
                                   plan::ScoreHistogram* histogram) {
  const plan::Cluster& cluster = plan.cluster;
  const bool scored = !plan.keep_all || plan.score;
  const auto loads = [&](const plan::Split& split) {
    return plan::expert_loads(split, cluster.experts, cluster.ranks);
  };
  const auto forward_gemm = gemm_rows(plan, loads(plan.forward));
  const auto backward_gemm = plan.keep_all ? forward_gemm : gemm_rows(plan, loads(plan.backward));
  const bool caches = plan.activations == plan::Activations::quota && !plan.keep_all;
  const CachedPairs cached = caches ? cache_likely(plan, sources, settings.options) : CachedPairs();
  plan::Loads again(cluster.experts, cluster.ranks);  // pairs computed again
  std::vector<cost::LayerWork> works;
  for (int r = 0; r < cluster.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Source& source = sources.ranks[i];
    const std::vector<std::uint8_t> listed = shortlist(settings.options, source);
    const plan::RoutedPairs pairs = plan::route_pairs(
        source.experts, cluster.experts, plan::routes_of(plan.forward, r), cluster.ranks, listed);
    RowCounter rows(source.tokens, cluster.top_k);
    cost::LayerWork& work = works.emplace_back();
    work.tokens = source.tokens;
    work.forward_rows = rows.count(pairs);
    work.forward_pairs = to_int32(pairs.per_rank);
    work.forward_gemm_rows = forward_gemm[i];
    const bool outputs =
        !plan.keep_all && settings.options.router_gradient == plan::RouterGradient::exact;
    work.combine_rows = outputs ? work.forward_pairs : work.forward_rows;
    work.recompute = plan.activations == plan::Activations::recompute;
    work.chunks = plan.chunks;
    if (strategy.selection() != nullptr) {
      work.plan_cells = std::int64_t{cluster.ranks} * cluster.experts;
    }
    if (scored) {
      const auto all = static_cast<std::int64_t>(source.experts.size());
      work.scored_pairs = all;
      work.statistics_bytes = all * 4 * plan::statistics_of(settings.options);
      if (histogram != nullptr) {
        learn(source, pairs, listed, *histogram);
      }
    }
    if (plan.keep_all) {
      work.backward_rows = work.forward_rows;
      work.backward_pairs = work.forward_pairs;
    } else {
      const std::span<const std::int32_t> home =
          caches ? std::span(cached.home[i]) : std::span<const std::int32_t>();
      const plan::RoutedPairs kept = select_kept(plan, r, source, pairs, settings, home, work);
      work.backward_rows = rows.count(kept);
      work.backward_pairs = to_int32(kept.per_rank);
      if (caches) {
        work.again_rows = rows.count(not_cached(kept, source, home, again));
        work.cached_pairs = cached.on_rank[i];
        // A byte per pair says whether it is cached.
        work.statistics_bytes += static_cast<std::int64_t>(source.experts.size());
      }
    }
    work.backward_gemm_rows = backward_gemm[i];
  }
  if (caches) {
    const auto again_gemm = gemm_rows(plan, again);
    for (std::size_t r = 0; r < works.size(); ++r) {
      works[r].again_gemm_rows = again_gemm[r];
    }
  }
  return works;
}

/// Pairs on the sources' shortlists, [R, E].
plan::Counts listed_counts(const Sources& sources, const LayerSettings& settings) {
  plan::Counts listed(settings.cluster.ranks, settings.cluster.experts);
  for (int r = 0; r < settings.cluster.ranks; ++r) {
    const Source& source = sources.ranks[static_cast<std::size_t>(r)];
    const std::vector<std::uint8_t> flags = shortlist(settings.options, source);
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] != 0 && source.experts[i] < settings.cluster.experts) {
        ++listed.at(r, static_cast<int>(source.experts[i]));
      }
    }
  }
  return listed;
}

}  // namespace

std::vector<std::uint8_t> shortlist(const plan::LrmoeOptions& options, const Source& source) {
  if (options.shortlist >= 1.0) {
    return {};
  }
  if (options.shortlist_by == plan::ShortlistBy::output) {
    throw InputError(
        "a trace does not hold the experts' outputs that shortlist_by = output ranks by; replay "
        "with shortlist_by=gate");
  }
  std::vector<std::int64_t> order(source.gates.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return source.gates[static_cast<std::size_t>(a)] > source.gates[static_cast<std::size_t>(b)];
  });
  std::vector<std::uint8_t> listed(order.size(), 0);
  const std::int64_t count = plan::shortlist_size(options, static_cast<std::int64_t>(order.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    listed[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = 1;
  }
  return listed;
}

std::vector<cost::LayerWork> count_work(const plan::Strategy& strategy, const plan::Plan& plan,
                                        const Sources& sources, const LayerSettings& settings) {
  return count(strategy, plan, sources, settings, nullptr);
}

void learn_scores(const Sources& sources, const plan::Strategy& strategy,
                  plan::ScoreCurves& curves) {
  if (strategy.selection() == nullptr) {
    return;
  }
  plan::ScoreHistogram histogram(sources.demand.cols);
  for (const Source& source : sources.ranks) {
    for (std::size_t i = 0; i < source.experts.size(); ++i) {
      if (source.experts[i] < sources.demand.cols) {
        histogram.add(static_cast<int>(source.experts[i]), source.scores[i]);
      }
    }
  }
  curves.update(histogram);
}

plan::Plan route_layer(const plan::Strategy& strategy, const LayerState& state,
                       const Sources& sources, const LayerSettings& settings, double& seconds) {
  plan::RouteInput input{settings.cluster, sources.demand, state.placement};
  input.curves = &state.curves;
  input.draw = settings.draw;
  plan::Counts listed;
  if (strategy.selection() != nullptr && settings.options.shortlist < 1.0) {
    listed = listed_counts(sources, settings);
    input.listed = &listed;
  }
  const Stopwatch watch;
  plan::Plan plan = strategy.route(input);
  seconds = watch.seconds();
  plan.chunks = std::max(plan.chunks, settings.chunks);
  return plan;
}

LayerRun run_layer(const plan::Strategy& strategy, const LayerState& state, const Sources& sources,
                   const LayerSettings& settings, plan::ScoreHistogram& histogram) {
  LayerRun run;
  run.plan = route_layer(strategy, state, sources, settings, run.plan_seconds);
  run.work = count(strategy, run.plan, sources, settings, &histogram);
  return run;
}

}  // namespace lrmoe::replay
