// What one MoE layer of a Python model keeps between its calls: options, score
// curves, placement, counts. Python names it by a number, so that a compiled graph
// can hold that as a constant.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/moe/experts.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::python {

/// How a call of the experts is meant; the numbers are Python's.
enum class Pass : std::int64_t {
  whole = 0,   // every pair has a backward pass: evaluation
  train = 1,   // as configured; counted, and its scores are learnt from
  silent = 2,  // as configured, but leaves no trace (gradient audit)
};

/// Sums over the backward passes since they were last taken.
struct LayerCounts {
  std::int64_t passes = 0;
  std::int64_t pairs = 0;  // of this rank, routed
  std::int64_t kept = 0;   // of them, with a backward pass
  double added_variance = 0;
  double total_variance = 0;
  std::vector<std::int64_t> demand;                       // [E] over all ranks
  std::vector<std::int64_t> forward_load, backward_load;  // [R] pairs
};

class LayerState {
 public:
  /// `settings`: {"experts": E, "index": layer number} and, over a process group,
  /// {"group": its name, "slots": S}.
  explicit LayerState(const nlohmann::json& settings);

  /// {"seed": s, "index": l, and keys of the configuration's section [lrmoe]}; what is
  /// not named stays. InputError names a key that is wrong.
  void configure(const nlohmann::json& options);

  int experts() const { return cluster_.experts; }
  comm::Communicator& communicator() { return *communicator_; }
  /// In force now: [R, S].
  const plan::Placement& placement() const { return placement_; }
  /// The experts whose parameters each rank has: [R, ceil(E / R)], -1: none.
  const plan::Placement& owned() const { return owned_; }
  /// Whether slots are more than what the ranks own: then weights are delivered from
  /// the owners to the placement (deliver.h), which is planned anew for every step.
  bool delivers() const { return delivers_; }

  /// The call of this pass: gathers the demand and plans. Collective.
  ///   ids, gates: [T, k].
  moe::ExpertsCall call(const at::Tensor& ids, const at::Tensor& gates, bool backward, Pass pass);

  /// A training pass is about to use these weights: if an optimizer has changed them
  /// since the last one, a step has ended. Not asked any more once `set_step` was used.
  void see_weights(const at::Tensor& gate_up, const at::Tensor& down);
  /// Says which step it is; a change ends the step before. Collective over a group.
  void set_step(std::int64_t step);

  void count(const moe::ExpertsCall& call);
  LayerCounts take_counts();

  /// What a checkpoint keeps: [step, curves...] int64. `restore` takes it back.
  at::Tensor state() const;
  void restore(const at::Tensor& state);

 private:
  void end_step();
  std::int64_t draw(const plan::Counts& demand) const;

  std::unique_ptr<comm::Communicator> communicator_;
  plan::Cluster cluster_;
  plan::Placement placement_, owned_;
  bool delivers_ = false;
  plan::Counts step_demand_;  // [R, E] of this step's training passes
  plan::LrmoeOptions options_;
  std::unique_ptr<const plan::Strategy> strategy_;
  plan::ScoreCurves curves_;
  std::shared_ptr<plan::ScoreHistogram> histogram_;
  std::uint64_t seed_ = 0;
  std::int64_t index_ = 0;
  std::int64_t step_ = 0;
  bool told_steps_ = false;
  std::optional<std::pair<std::int64_t, std::int64_t>> versions_;  // of the weights last seen
  mutable std::mutex mutex_;  // of the counts: backward passes may run in another thread
  LayerCounts counts_;
};

/// The layers by number. Thread-safe.
class LayerRegistry {
 public:
  static LayerRegistry& instance();
  std::int64_t add(std::shared_ptr<LayerState> layer);
  /// InputError where there is no such layer.
  std::shared_ptr<LayerState> get(std::int64_t number) const;
  void remove(std::int64_t number);

 private:
  mutable std::mutex mutex_;
  std::int64_t next_ = 1;
  std::map<std::int64_t, std::shared_ptr<LayerState>> layers_;
};

}  // namespace lrmoe::python
