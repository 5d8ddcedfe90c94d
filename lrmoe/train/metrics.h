// metrics.jsonl: one line of JSON per step, readable while the run goes on and
// after it was interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/base/output_file.h"

namespace lrmoe::train {

/// What is measured of all MoE layers together and of each alone. Times are of
/// the slowest rank, bytes summed over ranks, memory of the fullest rank.
struct MoeMetrics {
  double moe_forward_seconds = 0;
  double moe_backward_seconds = 0;
  double retained_ratio = 1;  // backward pairs / routed pairs
  double added_variance = 0;
  double imbalance_forward = 1;  // fullest rank's pairs / mean
  double imbalance_backward = 1;
  std::int64_t bytes_forward = 0;
  std::int64_t bytes_backward = 0;
  std::int64_t dropped_pairs = 0;  // forward: a capacity's overflow
  std::int64_t memory_peak_bytes = 0;
};

struct StepMetrics {
  std::int64_t step = 0;  // counts from 1
  double loss = 0;        // mean cross-entropy of the step's tokens
  double aux_loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double clip_coefficient = 1;
  std::int64_t tokens = 0;
  double seconds = 0;               // of the whole step
  double moe_seconds = 0;           // forward + backward + update
  double moe_exchange_seconds = 0;  // within forward and backward
  double moe_update_seconds = 0;    // expert gradients, optimizer, weights to the next placement
  std::int64_t bytes_update = 0;
  MoeMetrics moe;                         // all layers; printed without a prefix
  std::optional<double> validation_loss;  // where this step ended with an evaluation
  std::vector<int> layer_index;           // the model's layer of each entry below
  std::vector<MoeMetrics> layers;
};

/// The line, without its end. Numbers that are not finite become null.
std::string to_json_line(const StepMetrics& metrics);

/// InputError where the line is no such metrics.
StepMetrics from_json_line(const std::string& line);

/// Adds a line per step; each is handed to the system at once. RunError when
/// that fails.
class MetricsWriter {
 public:
  /// Appends to what is there.
  explicit MetricsWriter(const std::filesystem::path& path);
  void write(const StepMetrics& metrics);

 private:
  OutputFile file_;
};

/// All steps of the file; a last line that was cut off is left out. InputError
/// that names the line for anything else.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& path);

/// Keeps the steps up to `last_step`, for a run that goes on from there.
void truncate_metrics(const std::filesystem::path& path, std::int64_t last_step);

}  // namespace lrmoe::train
