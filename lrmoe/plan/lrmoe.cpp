#include "lrmoe/plan/lrmoe.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/assign.h"
#include "lrmoe/plan/even.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/robust.h"
#include "lrmoe/plan/split.h"
#include "lrmoe/plan/symi.h"

namespace lrmoe::plan {
namespace {

class Lrmoe final : public Strategy {
 public:
  explicit Lrmoe(const LrmoeOptions& options) : options_(options) { check_options(options); }
  std::string_view name() const override { return "lrmoe"; }
  const LrmoeOptions* selection() const override { return &options_; }

  Placement initial(const Cluster& cluster) const override {
    check_cluster(cluster);
    const std::vector<std::int64_t> even(static_cast<std::size_t>(cluster.experts), 1);
    return place_robust(cluster, even, even);
  }

  Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                  const ScoreCurves* curves) const override {
    if (total_pairs(demand) == 0) {
      return present;
    }
    const auto pairs = pairs_per_expert(demand);
    const auto quota = quota_without_ranks(curves, pairs, quota_settings(options_, curves, pairs));
    return place_robust(cluster, pairs, quota);
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

std::unique_ptr<const Strategy> make_lrmoe(const StrategyOptions& options) {
  return std::make_unique<Lrmoe>(options.lrmoe);
}

std::unique_ptr<const Strategy> make_symi_sampled(const StrategyOptions& options) {
  return std::make_unique<SymiSampled>(options.lrmoe);
}

}  // namespace lrmoe::plan
