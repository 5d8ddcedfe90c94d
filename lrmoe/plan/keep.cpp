#include "lrmoe/plan/keep.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

/// [E, R] from values of the instances [I].
Loads to_table(const InstanceIndex& index, std::span<const std::int64_t> values) {
  Loads table(index.experts, index.ranks);
  for (std::size_t i = 0; i < values.size(); ++i) {
    table.at(index.expert[i], index.rank[i]) = values[i];
  }
  return table;
}

std::vector<std::int64_t> of_instances(const InstanceIndex& index, const Loads& table) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < index.rank.size(); ++i) {
    values.push_back(table.at(index.expert[i], index.rank[i]));
  }
  return values;
}

}  // namespace

QuotaSettings quota_settings(const LrmoeOptions& options, const PriceTable& prices,
                             std::span<const std::int64_t> pairs) {
  const std::int64_t floor = to_fixed(options.floor);
  // However large the variance may be, every expert keeps its floor.
  const std::int64_t ratio =
      options.variance > 0.0
          ? std::max({ratio_for_variance(prices, pairs, options.variance), floor, std::int64_t{1}})
          : std::max<std::int64_t>(to_fixed(options.ratio), 1);
  return {ratio, floor, to_fixed(options.slack)};
}

QuotaSettings quota_settings(const LrmoeOptions& options, const ScoreCurves* curves,
                             std::span<const std::int64_t> pairs) {
  PriceTable flat(1);
  return quota_settings(options, prices_of(curves, static_cast<int>(pairs.size()), flat), pairs);
}

Counts assumed_shortlist(const LrmoeOptions& options, const Counts& demand) {
  Counts listed(demand.rows, demand.cols);
  for (int r = 0; r < demand.rows; ++r) {
    const std::vector<std::int64_t> pairs(demand.row(r).begin(), demand.row(r).end());
    const std::int64_t all = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
    const std::vector<std::int64_t> parts = apportion(shortlist_size(options, all), pairs);
    std::transform(parts.begin(), parts.end(), listed.row(r).begin(),
                   [](std::int64_t part) { return static_cast<std::int32_t>(part); });
  }
  return listed;
}

void even_out_kept(const RouteInput& input, const LrmoeOptions& options, RouteScratch& scratch) {
  if (options.activations != Activations::keep || input.curves == nullptr) {
    return;  // without curves every expert keeps the same share
  }
  Outline& outline = scratch.outline;
  const std::vector<std::int64_t>& demand = outline.demand.all;
  std::vector<std::int64_t>& offered = scratch.kept;
  offered = input.listed != nullptr ? pairs_per_expert(*input.listed) : demand;
  const std::int64_t all = std::accumulate(offered.begin(), offered.end(), std::int64_t{0});
  const std::int64_t routed = std::accumulate(demand.begin(), demand.end(), std::int64_t{0});
  if (all == 0) {
    return;
  }
  QuotaSettings settings = quota_settings(options, input.curves->prices(), offered);
  settings.ratio = std::min(mul_div(settings.ratio, routed, all), kOne);
  if (settings.ratio == kOne && input.listed == nullptr) {
    return;
  }
  Quotas& quotas = scratch.quotas;
  quota_without_ranks(input.curves->prices(), offered, outline.index.ranks, settings, quotas);
  std::vector<std::int64_t>& share = quotas.quota;
  for (std::size_t e = 0; e < share.size(); ++e) {
    share[e] = demand[e] > 0 ? share[e] / demand[e] : 0;
  }
  scratch.exchange.run(outline.index, share, quotas.capacity, node_width(input.cluster),
                       outline.forward);
}

void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input,
               RouteScratch& scratch) {
  const Cluster& cluster = plan.cluster;
  const Outline& outline = scratch.outline;
  const Counts& offered = input.listed != nullptr ? *input.listed : plan.demand;
  const bool keep = options.activations == Activations::keep;
  Split listed;
  std::vector<std::int64_t> listed_loads;
  if (keep && input.listed != nullptr) {
    listed = listed_routes(plan.forward, offered);
    listed_loads =
        of_instances(outline.index, expert_loads(listed, cluster.experts, cluster.ranks));
  }
  outline_backward(input, options, -1, listed_loads, scratch);
  plan.notes.insert(plan.notes.end(), outline.notes.begin(), outline.notes.end());
  plan.score = outline.score;
  if (outline.keep_all) {
    return;
  }
  plan.keep_all = false;
  plan.added_variance = outline.added_variance;
  plan.listed = input.listed != nullptr;
  plan.draw = input.draw;
  plan.cells = keep ? cells_of_routes(plan.listed ? listed : plan.forward,
                                      to_table(outline.index, outline.quota))
                    : cells_of_sources(offered, outline.quota);
  draw_counts(plan.cells, plan.draw);
  plan.quota = Counts(cluster.ranks, cluster.experts);
  plan.backward.clear();
  for (const Cell& cell : plan.cells) {
    plan.quota.at(cell.source, cell.expert) += cell.keep;
    if (keep && cell.keep > 0) {
      plan.backward.push_back({cell.source, cell.expert, cell.rank, cell.keep});
    }
  }
  if (!keep) {
    plan.backward = assign_sources(cluster, plan.quota, to_table(outline.index, outline.backward));
  }
}

}  // namespace lrmoe::plan
