#include "lrmoe/plan/lrmoe.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/budget.h"
#include "lrmoe/plan/even.h"
#include "lrmoe/plan/evenest.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/near.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/robust.h"
#include "lrmoe/plan/split.h"
#include "lrmoe/plan/symi.h"
#include "lrmoe/plan/target.h"

namespace lrmoe::plan {
namespace {

class Lrmoe final : public Strategy {
 public:
  explicit Lrmoe(const StrategyOptions& options)
      : options_(options.lrmoe), costs_(options.costs), memory_(options.memory) {
    check_options(options_);
    check_targets(options);
  }
  std::string_view name() const override { return "lrmoe"; }
  const LrmoeOptions* selection() const override { return &options_; }

  Placement initial(const Cluster& cluster) const override {
    check_cluster(cluster);
    const std::vector<std::int64_t> even(static_cast<std::size_t>(cluster.experts), 1);
    Cluster c = cluster;
    if (memory_.bytes > 0) {  // replicas have to wait until demand says what they cost
      c.slots = (c.experts + c.ranks - 1) / c.ranks;
    }
    return with_slots(place_robust(c, even, even), cluster.slots);
  }

  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* curves) const override {
    if (total_pairs(demand) == 0) {
      return present;
    }
    if (memory_.bytes == 0) {
      return place_for(options_, cluster, demand, present, curves);
    }
    // The shortlists of this demand are not known: they are assumed to be like it.
    const bool lists = options_.shortlist < 1.0 && options_.shortlist_by == ShortlistBy::gate;
    const Counts listed = lists ? assumed_shortlist(options_, demand) : Counts();
    return affordable_placement(
        memory_, cluster, *options_.activations, [&](int slots, Activations activations) {
          LrmoeOptions options = options_;
          options.activations = activations;
          Cluster c = cluster;
          c.slots = slots;
          const Placement placement =
              with_slots(place_for(options, c, demand, present, curves), cluster.slots);
          return route_with(options,
                            {cluster, demand, placement, false, curves, lists ? &listed : nullptr});
        });
  }

  Plan route(const RouteInput& input) const override {
    check_input(input);
    if (memory_.bytes == 0 || input.evaluate) {
      return route_with(options_, input);
    }
    return plan_within(memory_, options_,
                       [&](const LrmoeOptions& options) { return route_with(options, input); });
  }

  RankPlan route_rank(const RouteInput& input, int rank, RouteScratch& scratch) const override {
    // A budget needs all ranks' memory; a shortlist in mode keep all sources' routes.
    const bool listed_routes = input.listed != nullptr && options_.activations == Activations::keep;
    if (!input.evaluate && (memory_.bytes > 0 || listed_routes)) {
      return part_of(route(input), rank);
    }
    outline_forward(input, rank, scratch);
    if (!input.evaluate) {
      const LrmoeOptions options = timed(options_, input.cluster, input.demand);
      even_out_kept(input, options, scratch);
      outline_backward(input, options, rank, {}, scratch);
    }
    RankPlan part = part_of_outline(input, rank, scratch);
    part.activations = *options_.activations;
    return part;
  }

 private:
  Placement place_for(const LrmoeOptions& given, const Cluster& cluster, const Counts& demand,
                      const Placement& present, const ScoreCurves* curves) const {
    const auto pairs = pairs_per_expert(demand);
    const LrmoeOptions options = timed(given, cluster, demand);
    const QuotaSettings settings = quota_settings(options, curves, pairs);
    const auto quota = quota_without_ranks(curves, pairs, settings);
    RobustSettings robust;
    // Without curves every expert keeps the same share: even forward is even backward.
    robust.tied =
        options.activations == Activations::keep && curves != nullptr && settings.ratio < kOne;
    const PlacementDemand wanted{cluster, pairs, quota, &demand, *options.activations};
    const auto place_in = [&](int slots) {
      PlacementDemand d = wanted;
      d.cluster.slots = slots;
      return with_slots(bring_near(costs_, d, place_evenest(d.cluster, pairs, quota, robust)),
                        cluster.slots);
    };
    if (options.placing == Placing::next_step) {
      return place_in(cluster.slots);
    }
    // Replicas cost a fetch each: as many as there is room for, or none.
    std::vector<Placement> candidates{place_in(cluster.slots)};
    const int least = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
    if (costs_.fetch_instance > 0.0 && least < cluster.slots) {
      candidates.push_back(place_in(least));
    }
    return place_in_step(costs_, wanted, present, candidates);
  }

  /// A ceiling on the time becomes a ratio.
  LrmoeOptions timed(LrmoeOptions options, const Cluster& cluster, const Counts& demand) const {
    if (options.time > 0.0) {
      options.ratio =
          ratio_for_time(costs_, cluster, total_pairs(demand), options.time, *options.activations);
    }
    return options;
  }

  Plan route_with(const LrmoeOptions& options, const RouteInput& input) const {
    const Cluster& cluster = input.cluster;
    Plan plan;
    plan.strategy = name();
    plan.cluster = cluster;
    plan.demand = input.demand;
    plan.quota = input.demand;
    plan.dropped = Counts(cluster.ranks, cluster.experts);
    plan.placement = input.placement;
    RouteScratch scratch;
    outline_forward(input, -1, scratch);
    const LrmoeOptions timed_options = timed(options, cluster, input.demand);
    if (!input.evaluate) {
      even_out_kept(input, timed_options, scratch);
    }
    const InstanceIndex& index = scratch.outline.index;
    Loads loads(cluster.experts, cluster.ranks);
    for (std::size_t i = 0; i < index.rank.size(); ++i) {
      loads.at(index.expert[i], index.rank[i]) = scratch.outline.forward[i];
    }
    plan.forward = assign_sources(cluster, input.demand, loads);
    plan.backward = plan.forward;
    plan.activations = *options.activations;
    if (!input.evaluate) {
      keep_part(plan, timed_options, input, scratch);
    }
    return plan;
  }

  static void check_targets(const StrategyOptions& options) {
    if (options.lrmoe.time > 0.0 && !options.costs.known()) {
      throw InputError(
          "[lrmoe] time needs to know what work costs: set [clock] profile to a virtual cluster");
    }
    if (options.lrmoe.time > 0.0 && options.lrmoe.variance > 0.0) {
      throw InputError("[lrmoe] time and variance are two targets in place of ratio; set one");
    }
  }

  LrmoeOptions options_;
  PlanCosts costs_;
  MemoryBudget memory_;
};

class SymiSampled final : public Strategy {
 public:
  explicit SymiSampled(const LrmoeOptions& options)
      : options_(options), symi_(make_strategy({.name = "symi"})) {
    check_options(options);
    if (options.time > 0.0) {
      throw InputError("[lrmoe] time is a target of lrmoe; symi-sampled takes ratio or variance");
    }
  }
  std::string_view name() const override { return "symi-sampled"; }
  const LrmoeOptions* selection() const override { return &options_; }
  Placement initial(const Cluster& cluster) const override { return symi_->initial(cluster); }
  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* curves) const override {
    return symi_->place(cluster, demand, present, curves);
  }
  Plan route(const RouteInput& input) const override {
    Plan plan = route_evenly(name(), input, kNoCapacity, *options_.activations);
    if (!input.evaluate) {
      RouteScratch scratch;
      Outline& outline = scratch.outline;
      outline.index.build(input.placement, input.cluster.experts);
      outline.demand.build(input.cluster, input.demand, outline.index, -1);
      const Loads loads = expert_loads(plan.forward, input.cluster.experts, input.cluster.ranks);
      for (std::size_t i = 0; i < outline.index.rank.size(); ++i) {
        outline.forward.push_back(loads.at(outline.index.expert[i], outline.index.rank[i]));
      }
      keep_part(plan, options_, input, scratch);
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
  require(options.time >= 0.0, "time", options.time, "0 (off) or more seconds");
  require(options.shortlist > 0.0 && options.shortlist <= 1.0, "shortlist", options.shortlist,
          "above 0 and at most 1");
  require(options.floor >= 0.0 && options.floor <= 1.0, "floor", options.floor, "from 0 to 1");
  require(options.variance_limit >= 0.0, "variance_limit", options.variance_limit,
          "0 (off) or more");
  require(options.slack >= 0.0 && options.slack <= 100.0, "slack", options.slack, "from 0 to 100");
}

std::unique_ptr<const Strategy> make_lrmoe(const StrategyOptions& options) {
  return std::make_unique<Lrmoe>(options);
}

std::unique_ptr<const Strategy> make_symi_sampled(const StrategyOptions& options) {
  return std::make_unique<SymiSampled>(options.lrmoe);
}

}  // namespace lrmoe::plan
