#include "lrmoe/plan/keep.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/split.h"

namespace lrmoe::plan {
namespace {

std::string percent_above_mean(std::int64_t capacity, std::int64_t target, int ranks) {
  const std::int64_t mean = std::max<std::int64_t>(target / ranks, 1);
  return std::to_string(mul_div(capacity - mean, 100, mean)) + "%";
}

}  // namespace

QuotaSettings quota_settings(const LrmoeOptions& options, const ScoreCurves* curves,
                             std::span<const std::int64_t> pairs) {
  const std::int64_t ratio = options.variance > 0.0
                                 ? ratio_for_variance(curves, pairs, options.variance)
                                 : std::max<std::int64_t>(to_fixed(options.ratio), 1);
  return {ratio, to_fixed(options.floor), to_fixed(options.slack)};
}

void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input) {
  LRMOE_ASSERT(input.draw >= 0 && input.draw < kOne, "[keep_part] the draw is not in [0, 1)");
  const Cluster& cluster = plan.cluster;
  const ScoreCurves* curves = input.curves;
  const Counts& offered = input.listed != nullptr ? *input.listed : plan.demand;
  const auto pairs = pairs_per_expert(offered);
  const std::int64_t all = total_pairs(offered);
  QuotaSettings settings = quota_settings(options, curves, pairs);
  if (all == 0 || (settings.ratio >= kOne && input.listed == nullptr)) {
    return;
  }
  // The ratio is of all pairs, also where only those listed can be kept.
  settings.ratio = std::min(mul_div(settings.ratio, total_pairs(plan.demand), all), kOne);
  if (settings.ratio == kOne && input.listed != nullptr) {
    plan.notes.push_back(
        "the shortlist holds fewer pairs than the ratio asks for: all of it is kept");
  }

  const bool keep = options.activations == Activations::keep;
  const Instances instances = instances_of(plan.placement, cluster.experts);
  const Split routes =
      keep && input.listed != nullptr ? listed_routes(plan.forward, offered) : plan.forward;
  std::vector<Cell> cells;
  std::int64_t capacity = 0;
  bool raised = false;
  if (keep) {
    const Loads loads = expert_loads(routes, cluster.experts, cluster.ranks);
    const RankQuotas quotas = quota_at_ranks(curves, loads, settings);
    cells = cells_of_routes(routes, quotas.quota);
    plan.added_variance =
        predicted_variance(curves, loads.values, quotas.quota.values, cluster.ranks);
    capacity = quotas.capacity;
    raised = quotas.raised;
  } else {
    const ExpertQuotas quotas = quota_of_experts(curves, pairs, instances, cluster.ranks, settings);
    cells = cells_of_sources(offered, quotas.quota);
    plan.added_variance = predicted_variance(curves, pairs, quotas.quota, 1);
    capacity = quotas.capacity;
    raised = quotas.raised;
  }
  if (options.mode == SelectMode::top) {
    plan.added_variance = 0.0;  // not sampled: biased, but without variance
  }
  if (options.variance_limit > 0.0 && plan.added_variance > options.variance_limit) {
    plan.notes.push_back("all pairs are kept: the predicted added variance " +
                         print_number(plan.added_variance) + " is above variance_limit " +
                         print_number(options.variance_limit));
    plan.added_variance = 0.0;
    plan.score = true;
    return;
  }
  if (raised) {
    plan.notes.push_back(
        "the experts' instances are too few to retain the ratio within the "
        "slack: the fullest rank's backward load is " +
        percent_above_mean(capacity, all * settings.ratio, cluster.ranks) + " above the mean");
  }
  plan.keep_all = false;
  plan.listed = input.listed != nullptr;
  plan.draw = input.draw;
  plan.cells = std::move(cells);
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
    const MinMaxSplit split = min_max_split(cluster, plan.quota, instances);
    plan.backward = assign_sources(cluster, plan.quota, split.loads);
  }
}

}  // namespace lrmoe::plan
