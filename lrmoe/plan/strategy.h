// Strategies: how experts are placed and how a step's pairs are routed over
// their instances. Pure functions of their inputs: every rank calls them with
// the same tables and gets the same bytes, so no plan is ever sent.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/plan/costs.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/options.h"
#include "lrmoe/plan/rank_plan.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

class ScoreCurves;  // plan/curve.h

/// Settings of all strategies; each reads those that concern it.
struct StrategyOptions {
  std::string name = "fixed";
  /// fixed-capacity: expert capacity = floor(cf * pairs / E).
  /// symi: slot capacity = floor(cf * pairs / (R * S)). Infinity: dropless.
  double capacity_factor = std::numeric_limits<double>::infinity();
  LrmoeOptions lrmoe{};   // lrmoe, symi-sampled; all: activations
  PlanCosts costs{};      // lrmoe: of the cluster, where they are known
  MemoryBudget memory{};  // lrmoe: of a rank
};

/// What `Strategy::route` works from.
struct RouteInput {
  Cluster cluster;
  Counts demand;          // [R, E], this micro-batch
  Placement placement;    // [R, S], in force now
  bool evaluate = false;  // evaluation: no drops, everything whole, whatever the options
  const ScoreCurves* curves = nullptr;  // of earlier steps; null: every expert's is flat
  const Counts* listed = nullptr;       // pairs on the sources' shortlists [R, E]; null: all
  std::int64_t draw = 0;                // u in [0, 1), in 2^-kQuotaBits
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  /// True when experts never move: the optimizer stays with the owner and no
  /// expert weights are exchanged.
  virtual bool owns_experts() const { return false; }

  /// Settings of the selection where the backward pass may keep a part of the
  /// pairs (a plan of it may still say keep_all); null where all pairs are kept.
  virtual const LrmoeOptions* selection() const { return nullptr; }

  /// The placement before any demand was seen.
  virtual Placement initial(const Cluster& cluster) const = 0;

  /// The placement of the next step. `demand` [R, E]: this step's, summed over
  /// its micro-batches; `present`: the placement in force; `curves`: as in RouteInput.
  virtual Placement place(const Cluster& cluster, const Counts& demand, const Placement& present,
                          const ScoreCurves* curves = nullptr) const = 0;

  /// The plan of this micro-batch on the placement in force.
  virtual Plan route(const RouteInput& input) const = 0;

  /// One rank's part of it, exactly: what a training step waits for. `scratch`
  /// (outline.h) is reused from call to call and changes no result.
  virtual RankPlan route_rank(const RouteInput& input, int rank, RouteScratch& scratch) const;
};

/// LrmoeOptions::activations as it is set, or what the strategy does by itself: those that
/// never leave pairs out keep activations.
Activations activations_of(const StrategyOptions& options);

/// Errors: InputError for an unknown name (it lists those that exist) and for
/// settings that make no sense.
std::unique_ptr<const Strategy> make_strategy(const StrategyOptions& options);
std::vector<std::string> strategy_names();

/// InputError unless 1 <= k <= E, R, S >= 1 and R * S >= E.
void check_cluster(const Cluster& cluster);

/// InternalError unless the plan keeps the rules stated at `Plan`, every route
/// ends where its expert is placed and every expert has an instance.
void check_plan(const Plan& plan);

}  // namespace lrmoe::plan
