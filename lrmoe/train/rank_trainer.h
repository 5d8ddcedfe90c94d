// One rank's part of a training run: optimizer steps, evaluation, checkpoints.
// Every function is collective and gives the same numbers on every rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "lrmoe/train/batch.h"
#include "lrmoe/train/config.h"
#include "lrmoe/train/data.h"
#include "lrmoe/train/metrics.h"
#include "lrmoe/train/recording.h"
#include "lrmoe/train/replica.h"
#include "lrmoe/train/run_folder.h"
#include "lrmoe/train/step_clock.h"

namespace lrmoe::train {

class RankTrainer {
 public:
  /// All arguments outlive the trainer; `weights`: see Replica.
  RankTrainer(const Config& config, const plan::Strategy& strategy, const Data& data,
              comm::Communicator& communicator, const model::HfWeights* weights = nullptr);

  /// One optimizer step. RunError when loss or gradient is not finite.
  StepMetrics step();

  /// Mean cross-entropy of the held-out tokens, dropless; there must be some.
  double evaluate();

  /// Writes the checkpoint `step-N` of the run folder; goes on from one
  /// (train/checkpoint.h).
  void save(const std::filesystem::path& run_folder);
  void load(const Checkpoint& checkpoint);

  /// Begins to record the routing, where the configuration says so.
  void record();

  std::int64_t steps_done() const { return replica_.steps; }

 private:
  struct Losses {
    double cross_entropy = 0;  // mean over the step's trained tokens
    std::int64_t trained = 0;  // those, of all ranks and micro-batches
    double aux = 0;            // mean over its micro-batches
    std::optional<Audit> audit;
    double cpu_seconds = 0;  // of this rank, without the audit
  };
  /// Sequences of all ranks in a micro-batch.
  std::int64_t batch_sequences() const;
  /// This rank's part of the sequences at these places, which are all ranks' micro-batch.
  Batch own_batch(std::span<const std::int64_t> places) const;
  Losses forward_backward();
  /// Forward and backward of one micro-batch, on top of the gradients that are
  /// there; this rank's sum of the tokens' cross-entropy, and its auxiliary loss.
  /// `trained`: tokens of the whole step, over which the loss is a mean.
  std::pair<double, double> run_pass(const Batch& batch, std::int64_t trained,
                                     const moe::StepInfo& info);
  bool audits_this_step() const;
  double reduce_gradients();
  double clip(double norm);
  /// CPU seconds of the update; those of the passes stay zero.
  CpuSeconds update(double rate);
  void move_experts();

  const Config& config_;
  const Data& data_;
  Replica replica_;
  StepClock clock_;
  std::optional<Recording> recording_;
};

}  // namespace lrmoe::train
