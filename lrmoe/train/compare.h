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
  std::optional<double> target_loss;    // a validation loss; none: that with which symi ends
  int seeds = 1;           // runs of each strategy, with train.seed, train.seed + 1, ...
  std::string run_folder;  // holds a run folder per strategy (and seed), and compare.json
  bool quiet = false;
};

/// Seconds are the clock's. Seconds and counts are those up to the target where
/// it was reached, else of all steps.
struct CompareFigures {
  double steps = 0;  // a part of a step where the target was interpolated
  double moe_seconds = 0;
  double moe_forward_seconds = 0;
  double moe_backward_seconds = 0;
  double moe_exchange_seconds = 0;  // within forward and backward
  double moe_update_seconds = 0;
  double total_seconds = 0;
  double moe_seconds_per_step = 0;  // mean over all steps of the run
  double measured_moe_seconds = 0;  // wall, whatever the clock
  double measured_total_seconds = 0;
  std::optional<double> against_symi;  // moe_seconds / symi's; none unless both are to one point
  double added_variance = 0;           // mean over steps
  double retained_ratio = 1;           // mean over steps
  double final_loss = std::numeric_limits<double>::quiet_NaN();       // at the run's end
  double validation_loss = std::numeric_limits<double>::quiet_NaN();  // likewise
  double memory_subtotal = 0;  // bytes, peak on the fullest rank
  double dropped_pairs = 0;
};

struct CompareRun {
  std::uint64_t seed = 0;
  std::string run_folder;
  bool reached = false;
  std::optional<double> target_loss;
  CompareFigures figures;
};

struct CompareRow {
  std::string strategy;
  std::string activations;       // mode of what the forward pass leaves
  std::vector<CompareRun> runs;  // one per seed
  bool reached = false;          // by all of them
  CompareFigures mean, least, most;
};

struct Comparison {
  std::string clock;                  // "measured" or "virtual:PROFILE"
  std::string clock_words;            // the same with shape and scale, for people
  std::optional<double> target_loss;  // mean over seeds
  bool target_given = false;
  std::string baseline;  // the strategy that the others are compared with; empty: none
  std::vector<CompareRow> rows;
};

using TrainFunction = std::function<TrainResult(const TrainOptions&)>;

/// Splits "fixed,symi:capacity_factor=inf" at the commas; InputError when a name
/// is missing.
std::vector<std::string> split_strategies(const std::string& list);

/// Trains with each strategy, in the order given; all of them are checked before
/// the first begins. Without a target, it is the validation loss with which symi
/// ends (its own seed's), and where another run got there is interpolated between
/// its evaluations. InputError for a strategy, a setting or a folder that will not
/// do; a RunError says which strategy failed. Writes compare.json.
Comparison compare(const CompareOptions& options, const TrainFunction& train);

/// The document `lrmoe-compare`, version 1.
std::string to_compare_json(const Comparison& comparison);

/// The same as text: what is compared, by which clock, and tables.
std::string to_compare_text(const Comparison& comparison);

}  // namespace lrmoe::train
