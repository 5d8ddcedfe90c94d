// Comparing strategies: each trains from the same start on the same data, one
// after the other, until a validation loss is reached or its steps are done.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/train/config.h"
#include "lrmoe/train/trainer.h"

namespace lrmoe::train {

struct CompareOptions {
  Config config;
  std::vector<std::string> strategies;  // as with_strategy takes them
  std::optional<double> target_loss;    // a validation loss; none: all steps
  std::string run_folder;               // holds a run folder per strategy, and compare.json
  bool quiet = false;
};

/// Seconds and counts are those up to the target where it was reached, else all.
struct CompareRow {
  std::string strategy;
  std::string run_folder;
  bool reached = false;
  std::int64_t steps = 0;
  double moe_seconds = 0;
  double moe_forward_seconds = 0;
  double moe_backward_seconds = 0;
  double moe_exchange_seconds = 0;  // within forward and backward
  double moe_update_seconds = 0;
  double total_seconds = 0;
  std::optional<double> against_symi;  // moe_seconds / symi's; none without symi at the same target
  double added_variance = 0;           // mean over steps
  double final_loss = std::numeric_limits<double>::quiet_NaN();       // of the last step
  double validation_loss = std::numeric_limits<double>::quiet_NaN();  // of the last evaluation
  std::int64_t memory_subtotal = 0;  // bytes, peak on the fullest rank
  std::int64_t dropped_pairs = 0;
};

using TrainFunction = std::function<TrainResult(const TrainOptions&)>;

/// Splits "fixed,symi:capacity_factor=inf" at the commas; InputError when a name
/// is missing.
std::vector<std::string> split_strategies(const std::string& list);

/// Trains with each strategy, in the order given; all of them are checked before
/// the first begins. InputError for a strategy, a setting or a folder that will
/// not do; a RunError says which strategy failed. Writes compare.json.
std::vector<CompareRow> compare(const CompareOptions& options, const TrainFunction& train);

/// The document `lrmoe-compare`, version 1.
std::string to_compare_json(const std::vector<CompareRow>& rows, std::optional<double> target_loss);

/// The same as a table of text.
std::string to_compare_table(const std::vector<CompareRow>& rows);

}  // namespace lrmoe::train
