// Training: what `lrmoe train` does once its configuration is read. Free of
// torch; the work of one rank is in train/rank_trainer.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lrmoe/plan/strategy.h"
#include "lrmoe/train/config.h"

namespace lrmoe::train {

struct Validation {
  std::int64_t step = 0;     // steps done
  double loss = 0;           // mean cross-entropy, dropless, of the held-out tokens
  double moe_seconds = 0;    // of the MoE layers so far
  double total_seconds = 0;  // of the whole steps so far
};

struct TrainResult {
  std::int64_t steps = 0;      // steps done, those before a resume included
  std::vector<double> losses;  // mean cross-entropy of each step of this process
  std::vector<Validation> validations;
  double moe_seconds = 0;  // sums over this process's steps
  double total_seconds = 0;
  std::int64_t dropped_pairs = 0;
  std::int64_t memory_peak_bytes = 0;  // of the MoE layers, on the fullest rank
  double added_variance = 0;           // mean over steps
};

struct TrainOptions {
  Config config;
  std::string run_folder;  // made when it does not exist
  bool resume = false;     // go on from the newest checkpoint of the run folder
  bool quiet = false;      // no progress line
  /// Asked after every step (and its evaluation, if it had one), on rank 0, with
  /// the result so far; true ends the run there as if it had been its last step.
  std::function<bool(const TrainResult&)> stop;
};

/// Trains and writes the run folder. Errors: InputError for data, checkpoint or
/// configuration that cannot work; RunError when the loss is not finite, a file
/// cannot be written or a signal (SIGINT, SIGTERM) ended the run; after a signal
/// the checkpoint of the last step is whole and the message says how to go on.
TrainResult train(const TrainOptions& options);

/// The same with a given strategy in place of the configured one.
TrainResult train(const TrainOptions& options, const plan::Strategy& strategy);

}  // namespace lrmoe::train
