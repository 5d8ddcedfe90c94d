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
#include "lrmoe/plan/types.h"

namespace lrmoe::train {

/// What is known of all MoE layers together and of each alone. Measured times are
/// of the slowest rank; bytes are summed over ranks, memory is the fullest rank's.
struct MoeMetrics {
  double moe_forward_seconds = 0;
  double moe_backward_seconds = 0;
  double moe_exchange_seconds = 0;  // within the two above
  double moe_update_seconds = 0;    // expert gradients, optimizer, weights to the next placement
  double retained_ratio = 1;        // backward pairs / routed pairs
  double added_variance = 0;        // by sampling, over the sum of S^2; of the kept pairs' scores
  double predicted_variance = 0;    // the same from the score curves, before the pairs were scored
  double imbalance_forward = 1;     // fullest rank's pairs / mean
  double imbalance_backward = 1;
  std::int64_t bytes_forward = 0;
  std::int64_t bytes_backward = 0;
  std::int64_t dropped_pairs = 0;  // forward: a capacity's overflow
  std::int64_t memory_peak_bytes = 0;
  std::int64_t zero_pairs = 0;  // kept pairs that cost nothing: their token's delta was zero
};

/// How close a gradient is to that of the same tokens with every pair kept. Not a
/// number where one of them is zero and the other is not.
struct Agreement {
  double cosine = 1;
  double relative_error = 0;  // |g - g_all| / |g_all|
};

struct LayerAudit {
  int layer = 0;                     // of the model
  std::optional<Agreement> experts;  // where the layer has a MoE
  std::optional<Agreement> router;
  Agreement dense;  // attention, norms, shared experts or dense MLP
};

/// A gradient audit (train/audit.h), of the step's first micro-batch.
struct Audit {
  double seconds = 0;  // that the audit took; not part of the step's
  std::vector<LayerAudit> layers;
  Agreement rest;  // embedding, last norm, head
};

/// Wall seconds, where a step's other seconds are those of a virtual cluster.
struct MeasuredSeconds {
  double seconds = 0;
  double moe_seconds = 0;
  double moe_forward_seconds = 0;
  double moe_backward_seconds = 0;
  double moe_exchange_seconds = 0;
  double moe_update_seconds = 0;
};

/// What a virtual cluster's seconds are made of, beside forward, backward,
/// exchange and update (docs/clock.md).
struct PricedParts {
  double plan = 0;             // within forward
  double statistics = 0;       // within forward
  double select = 0;           // within backward
  double weight_exchange = 0;  // within update
  double scores = 0;           // within update
  double rest = 0;             // the model beside its MoE layers
};

/// What a plan gave up, and why.
struct LayerNote {
  int layer = 0;  // of the model
  std::string text;
  bool operator==(const LayerNote&) const = default;
};

struct StepMetrics {
  std::int64_t step = 0;  // counts from 1
  double loss = 0;        // mean cross-entropy of the step's trained tokens
  double aux_loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double clip_coefficient = 1;
  std::int64_t tokens = 0;
  std::int64_t trained_tokens = 0;  // of them, those that the loss is a mean over
  std::string clock = "measured";   // or "virtual:PROFILE": whose seconds these are
  double seconds = 0;               // of the whole step
  double moe_seconds = 0;           // forward + backward + update
  std::int64_t bytes_update = 0;
  MoeMetrics moe;                           // all layers; printed without a prefix
  std::optional<MeasuredSeconds> measured;  // with a virtual clock, as is `parts`
  std::optional<PricedParts> parts;
  std::optional<plan::MemoryTerms> memory;  // by the plans, of the fullest rank
  std::vector<LayerNote> notes;
  std::optional<double> validation_loss;  // where this step ended with an evaluation
  std::optional<Audit> audit;             // where lrmoe.audit_every asked for one
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
