#include "lrmoe/plan/lrmoe.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/even.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/place.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/split.h"
#include "lrmoe/plan/symi.h"

namespace lrmoe::plan {
namespace {

QuotaSettings settings_for(const LrmoeOptions& options, const ScoreCurves* curves,
                           std::span<const std::int64_t> pairs) {
  const std::int64_t ratio = options.variance > 0.0
                                 ? ratio_for_variance(curves, pairs, options.variance)
                                 : std::max<std::int64_t>(to_fixed(options.ratio), 1);
  return {ratio, to_fixed(options.floor), to_fixed(options.slack)};
}

std::string percent_above_mean(std::int64_t capacity, std::int64_t target, int ranks) {
  const std::int64_t mean = std::max<std::int64_t>(target / ranks, 1);
  return std::to_string(mul_div(capacity - mean, 100, mean)) + "%";
}

class Lrmoe final : public Strategy {
 public:
  explicit Lrmoe(const LrmoeOptions& options) : options_(options) { check_options(options); }
  std::string_view name() const override { return "lrmoe"; }
  const LrmoeOptions* selection() const override { return &options_; }

  Placement initial(const Cluster& cluster) const override {
    check_cluster(cluster);
    const std::vector<std::int64_t> even(static_cast<std::size_t>(cluster.experts), cluster.ranks);
    if (auto placement = pack_even(even, cluster.ranks, cluster.slots)) {
      return *std::move(placement);
    }
    std::vector<std::int32_t> once(even.size());
    std::iota(once.begin(), once.end(), 0);
    return pack_balanced(even, once, cluster.ranks, cluster.slots, true);
  }

  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* curves) const override {
    if (total_pairs(demand) == 0) {
      return present;
    }
    const auto pairs = pairs_per_expert(demand);
    const auto quota = quota_without_ranks(curves, pairs, settings_for(options_, curves, pairs));
    // Work per pair in multiples of 2dn FLOPs: forward 3; backward 6, and 2 more
    // where g and u are computed again.
    const std::int64_t again = options_.activations == Activations::recompute ? 8 : 6;
    std::vector<std::int64_t> forward, backward;
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      forward.push_back(3 * pairs[e] * kWorkUnits);
      backward.push_back(mul_div(quota[e], again * kWorkUnits, kOne));
    }
    return choose_placement(cluster, forward, backward, present);
  }

  Plan route(const RouteInput& input) const override {
    check_input(input);
    const Cluster& cluster = input.cluster;
    Plan plan;
    plan.strategy = name();
    plan.cluster = cluster;
    plan.demand = input.demand;
    plan.quota = input.demand;
    plan.dropped = Counts(cluster.ranks, cluster.experts);
    plan.placement = input.placement;
    const Instances instances = instances_of(input.placement, cluster.experts);
    const MinMaxSplit split = min_max_split(cluster, input.demand, instances);
    plan.forward = assign_sources(cluster, input.demand, split.loads);
    plan.backward = plan.forward;
    plan.activations = options_.activations;
    if (!input.evaluate) {
      keep_part(plan, options_, input);
    }
    return plan;
  }

 private:
  static constexpr std::int64_t kWorkUnits = 256;  // so that small quotas do not vanish

  LrmoeOptions options_;
};

class SymiSampled final : public Strategy {
 public:
  explicit SymiSampled(const LrmoeOptions& options)
      : options_(options), symi_(make_symi({.name = "symi"})) {
    check_options(options);
  }
  std::string_view name() const override { return "symi-sampled"; }
  const LrmoeOptions* selection() const override { return &options_; }
  Placement initial(const Cluster& cluster) const override { return symi_->initial(cluster); }
  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* curves) const override {
    return symi_->place(cluster, demand, present, curves);
  }
  Plan route(const RouteInput& input) const override {
    Plan plan = route_evenly(name(), input, kNoCapacity);
    plan.activations = options_.activations;
    if (!input.evaluate) {
      keep_part(plan, options_, input);
    }
    return plan;
  }

 private:
  LrmoeOptions options_;
  std::unique_ptr<const Strategy> symi_;
};

}  // namespace

void check_options(const LrmoeOptions& options) {
  const auto require = [](bool right, const char* key, double value, const char* range) {
    if (!right) {
      throw InputError("[lrmoe] " + std::string(key) + " must be " + range + ", not " +
                       print_number(value));
    }
  };
  require(options.ratio >= 1e-6 && options.ratio <= 1.0, "ratio", options.ratio,
          "above 0 and at most 1");
  require(options.variance >= 0.0, "variance", options.variance, "0 (off) or more");
  require(options.shortlist > 0.0 && options.shortlist <= 1.0, "shortlist", options.shortlist,
          "above 0 and at most 1");
  require(options.floor >= 0.0 && options.floor <= 1.0, "floor", options.floor, "from 0 to 1");
  require(options.variance_limit >= 0.0, "variance_limit", options.variance_limit,
          "0 (off) or more");
  require(options.slack >= 0.0 && options.slack <= 100.0, "slack", options.slack, "from 0 to 100");
}

void keep_part(Plan& plan, const LrmoeOptions& options, const RouteInput& input) {
  LRMOE_ASSERT(input.draw >= 0 && input.draw < kOne, "[keep_part] the draw is not in [0, 1)");
  const Cluster& cluster = plan.cluster;
  const ScoreCurves* curves = input.curves;
  const Counts& offered = input.listed != nullptr ? *input.listed : plan.demand;
  const auto pairs = pairs_per_expert(offered);
  const std::int64_t all = total_pairs(offered);
  QuotaSettings settings = settings_for(options, curves, pairs);
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

std::unique_ptr<const Strategy> make_lrmoe(const StrategyOptions& options) {
  return std::make_unique<Lrmoe>(options.lrmoe);
}

std::unique_ptr<const Strategy> make_symi_sampled(const StrategyOptions& options) {
  return std::make_unique<SymiSampled>(options.lrmoe);
}

}  // namespace lrmoe::plan
