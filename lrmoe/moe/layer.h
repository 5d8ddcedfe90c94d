// One rank's part of one MoE layer: router, demand, plan, experts, auxiliary
// loss. The experts' forward and backward live in moe/experts.h.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/cost/work.h"
#include "lrmoe/model/config.h"
#include "lrmoe/moe/expert_slots.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::moe {

/// Where in the run a forward pass stands.
struct StepInfo {
  std::int64_t step = 0;
  int micro_batch = 0;
  bool evaluate = false;  // no drops, no gradients, no metrics
  /// This pass drops none and keeps every pair, whatever the strategy says, and
  /// leaves no trace in the layer: no plan, work, demand or scores (gradient audit).
  bool keep_all = false;
  /// There may be tokens whose delta is exactly zero, such as those of a prompt that is
  /// not trained on: the backward pass looks for them and skips their pairs. The same on
  /// every rank.
  bool zero_deltas = false;
};

class MoeLayer {
 public:
  /// `communicator` and `strategy` outlive the layer. The weights depend on
  /// (seed, layer) alone, not on the ranks or the placement. `weights`: dtype of
  /// the experts' working weights; the router is always fp32 (fp64 if weights are).
  /// `ranks_per_node`: what the planner knows of the cluster; 0: all in one node.
  MoeLayer(const model::MoeConfig& config, int layer, int slots, comm::Communicator& communicator,
           const plan::Strategy& strategy, std::uint64_t seed, double init_std,
           at::ScalarType weights, int ranks_per_node = 0);

  struct Output {
    at::Tensor y;    // [T, d], dtype of x: the routed experts' sum
    at::Tensor aux;  // scalar fp32: this rank's share of E * sum_e f_e P_e, f and P over all ranks
    // What the same over several layers takes:
    at::Tensor share;  // [E]: this rank's tokens' score shares, summed; differentiable
    at::Tensor pairs;  // [E]: pairs of all ranks
  };
  /// x: [T, d], T may be 0 and may differ between ranks. Collective.
  Output forward(const at::Tensor& x, const StepInfo& info);

  /// Ends an optimizer step: plans the placement of the next one from the demand
  /// that this step's micro-batches had (returned), sums the scores of all ranks
  /// into the curves that the next plans buy from (collective, where the strategy
  /// selects), and updates the sigmoid router's bias. The caller delivers the
  /// weights to the placement (optim::ExpertOptimizer::deliver).
  plan::Placement finish_step();

  /// From now on the placement is planned in the step that uses it: the first
  /// micro-batch's forward pass plans it from its own demand and has `fetch` fill the
  /// slots of all ranks before the GEMMs; finish_step leaves the placement as it is.
  /// Every forward pass after a finish_step fetches, as the weights have changed.
  /// fetch: collective, e.g. optim::ExpertOptimizer::deliver.
  void place_in_step(std::function<void(const plan::Placement&)> fetch);

  /// Router weight [E, d]: a replicated parameter whose gradient is this rank's share.
  at::Tensor router_weight;
  /// Sigmoid router: e_score_correction_bias [E] fp32, no gradient; replicated.
  at::Tensor router_bias;

  /// The first value of an expert's flat parameters [gate_up 2nd | down dn]: fp32 [3dn].
  at::Tensor initial_expert(int expert) const;

  ExpertSlots& slots();
  const model::MoeConfig& config() const;
  const plan::Cluster& cluster() const;

  /// Demand [R, E] summed over the micro-batches since the last finish_step.
  const plan::Counts& step_demand() const;
  /// This rank's part of the plans of the micro-batches since the last finish_step.
  const std::vector<plan::RankPlan>& plans() const;
  /// The same plans whole, made anew.
  std::vector<plan::Plan> whole_plans() const;
  /// What this rank did in them (see cost/work.h); backward counts are filled
  /// in when the backward pass has run.
  const std::vector<std::shared_ptr<cost::LayerWork>>& work() const;
  /// Gets the scores [T * k] of this rank's pairs (token by token, as they were
  /// routed) in every backward pass that scores them; empty: nobody does.
  void watch_scores(std::function<void(std::span<const float>)> watcher);
  /// Gets the experts and gates, [T * k], of this rank's pairs in every forward pass
  /// that trains; empty: nobody does.
  void watch_routing(
      std::function<void(std::span<const std::int64_t>, std::span<const float>)> watcher);
  /// Score curves of earlier steps: [E * plan::kScoreBins], for checkpoints.
  plan::ScoreCurves& curves();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lrmoe::moe
