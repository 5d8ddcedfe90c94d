// Every rank's work of a step, brought together: what the metrics count and the
// virtual cluster's clock prices.
#pragma once

#include <span>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/cost/clock.h"
#include "lrmoe/model/transformer.h"
#include "lrmoe/train/replica.h"

namespace lrmoe::train {

/// CPU seconds of this rank's thread.
struct CpuSeconds {
  double passes = 0;                  // forward and backward of the whole model
  double dense_update = 0;            // AdamW of the dense parameters
  std::vector<double> expert_update;  // [layer] AdamW of the experts
};

struct GatheredWork {
  std::vector<std::vector<std::vector<cost::LayerWork>>> layers;  // [layer][micro-batch][rank]
  std::vector<CpuSeconds> cpu;                                    // [rank]

  /// Of the rank that takes longest: what the MoE layers' experts did not take.
  double rest_cpu_seconds() const;
};

/// Of the micro-batches since the layers' last finish_step. Collective; the same on
/// every rank.
GatheredWork gather_work(const model::Transformer& model, const CpuSeconds& cpu,
                         comm::Communicator& communicator);

/// The experts' optimizers before the experts move: next_instances is still empty.
std::vector<cost::OptimizerWork> optimizer_work(const Replica& replica, const GatheredWork& work);
/// And after.
void add_next_instances(std::vector<cost::OptimizerWork>& work, const Replica& replica);

}  // namespace lrmoe::train
