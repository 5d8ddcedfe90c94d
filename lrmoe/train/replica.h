// What one rank trains: its copy of the dense model, its experts and its part of
// the optimizers' state. A checkpoint is a Replica of every rank.
#pragma once

#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/hf_weights.h"
#include "lrmoe/model/transformer.h"
#include "lrmoe/optim/expert_optimizer.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/train/config.h"
#include "lrmoe/train/dense_optimizer.h"

namespace lrmoe::train {

struct Replica {
  /// At step 0, experts delivered to the strategy's first placement. Collective.
  /// `weights`: those of `model.path`, needed unless a checkpoint is loaded next; every
  /// rank reads its own shards of them. Parts that the run does not train
  /// (train/config_freeze.h) require no gradients.
  Replica(const Config& config, const plan::Strategy& strategy, comm::Communicator& communicator,
          const model::HfWeights* weights = nullptr);

  Replica(const Replica&) = delete;  // its layers know where it is
  Replica& operator=(const Replica&) = delete;

  comm::Communicator& communicator;
  const plan::Strategy& strategy;
  model::Transformer model;
  DenseOptimizer dense;  // of the parameters that are trained
  bool places_in_step;   // lrmoe.placement "in-step" (it concerns lrmoe alone)
  std::vector<optim::ExpertOptimizer> experts;  // one per MoE layer
  std::vector<plan::Counts> last_demand;        // [R, E] per MoE layer, of the last step
  std::int64_t steps = 0;                       // optimizer steps done
};

}  // namespace lrmoe::train
