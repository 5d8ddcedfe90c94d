// What a step did in its MoE layers, gathered from the layers' plans and work
// and brought together over the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/transformer.h"
#include "lrmoe/optim/expert_optimizer.h"
#include "lrmoe/train/metrics.h"

namespace lrmoe::train {

class StepCounts {
 public:
  /// Of the micro-batches since the layers' last finish_step.
  explicit StepCounts(const model::Transformer& model);
  /// The exchange and update of layer i's experts.
  void add_update(const optim::ExpertOptimizer& optimizer);
  /// Brings the ranks together and fills in the MoE part of `metrics`: bytes are
  /// summed over ranks; memory and seconds (of all layers, or of one) are the
  /// greatest of any rank. Collective.
  void write_to(StepMetrics& metrics, comm::Communicator& communicator);

 private:
  // From the plans, so of all ranks and the same on each: pairs, summed over the
  // micro-batches.
  struct Pairs {
    std::int64_t routed = 0;
    std::int64_t retained = 0;
    std::int64_t dropped = 0;
    std::int64_t forward = 0;  // computed
    std::int64_t forward_fullest = 0;
    std::int64_t backward_fullest = 0;
    double added_variance = 0;
    int plans = 0;
    void operator+=(const Pairs& other);
  };
  // This rank's.
  struct Own {
    std::int64_t forward_bytes = 0;
    std::int64_t backward_bytes = 0;
    std::int64_t memory_bytes = 0;
    double forward_seconds = 0;
    double backward_seconds = 0;
    double exchange_seconds = 0;
    void operator+=(const Own& other);
  };
  static Pairs count_pairs(const moe::MoeLayer& layer);
  static Own count_own(const moe::MoeLayer& layer);
  static MoeMetrics to_metrics(const Pairs& pairs, const Own& own, int ranks);
  static void reduce(std::vector<Own>& rows, comm::Communicator& communicator);

  std::vector<int> layer_index_;
  std::vector<Pairs> pairs_;  // per layer
  std::vector<Own> own_;
  std::int64_t update_bytes_ = 0;
  double update_seconds_ = 0;
};

}  // namespace lrmoe::train
