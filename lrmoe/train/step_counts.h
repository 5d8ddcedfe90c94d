// What a step did in its MoE layers, from the layers' plans and all ranks' work.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/transformer.h"
#include "lrmoe/optim/expert_optimizer.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/replay/memory.h"
#include "lrmoe/train/metrics.h"
#include "lrmoe/train/step_work.h"

namespace lrmoe::train {

class StepCounts {
 public:
  /// Of the micro-batches since the layers' last finish_step.
  StepCounts(const model::Transformer& model, const GatheredWork& work,
             const plan::MemoryModel& memory);
  /// The exchange and update of the experts of the next layer, in order.
  void add_update(const optim::ExpertOptimizer& optimizer);
  /// Fills in the MoE part of `metrics`: bytes are summed over ranks; memory and
  /// seconds (of all layers, or of one) are the greatest of any rank. Collective.
  void write_to(StepMetrics& metrics, comm::Communicator& communicator) const;

 private:
  // From the plans: pairs, summed over the micro-batches.
  struct Pairs {
    std::int64_t routed = 0;
    std::int64_t retained = 0;
    std::int64_t dropped = 0;
    std::int64_t forward = 0;  // computed
    std::int64_t forward_fullest = 0;
    std::int64_t backward_fullest = 0;
    double predicted_variance = 0;
    int plans = 0;
    void operator+=(const Pairs& other);
  };
  // Of one rank, one layer or more.
  struct Own {
    std::int64_t forward_bytes = 0;
    std::int64_t backward_bytes = 0;
    std::int64_t memory_bytes = 0;
    double forward_seconds = 0;
    double backward_seconds = 0;
    double exchange_seconds = 0;
    double added_variance = 0;
    double total_variance = 0;
    std::int64_t zero_pairs = 0;
    void operator+=(const Own& other);
  };
  using Ranks = std::vector<Own>;
  static Pairs count_pairs(const moe::MoeLayer& layer);
  static Ranks count_ranks(const std::vector<std::vector<cost::LayerWork>>& micro_batches);
  static MoeMetrics to_metrics(const Pairs& pairs, const Ranks& ranks);
  void note_plans(const moe::MoeLayer& layer, int index);
  void add_memory(const moe::MoeLayer& layer, const plan::MemoryModel& model);

  std::vector<int> layer_index_;
  std::vector<Pairs> pairs_;  // per layer
  std::vector<Ranks> ranks_;  // per layer
  std::vector<LayerNote> notes_;
  replay::LayersInFlight memory_;  // of all layers together
  std::int64_t update_bytes_ = 0;
  std::vector<double> update_seconds_;  // per layer
};

}  // namespace lrmoe::train
