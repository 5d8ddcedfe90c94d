#include "lrmoe/train/compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/compare_figures.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/metrics.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

/// "2-symi-capacity_factor=inf".
std::string folder_name(std::size_t index, const std::string& spec) {
  std::string name = std::to_string(index + 1) + "-";
  for (const char c : spec) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '=' || c == '.' ||
                       c == '_' || c == '-';
    name += plain ? c : '-';
  }
  return name;
}

void make_empty_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw_file_error("make the run folder", path, error.value());
  }
  if (!fs::is_empty(path)) {
    throw InputError("run folder " + quote(path.string()) +
                     " is not empty; name another with --run");
  }
}

/// The runs of every strategy, [strategy][seed].
std::vector<std::vector<TrainOptions>> plan_runs(const CompareOptions& options) {
  if (!options.config.trace.write.empty()) {
    throw InputError("trace.write = " + quote(options.config.trace.write) +
                     ": a comparison trains several times and records none; lrmoe train does");
  }
  if (options.seeds < 1 || options.seeds > 1000) {
    throw InputError("--seeds " + std::to_string(options.seeds) +
                     " will not do; it takes a whole number from 1 to 1000");
  }
  if (options.target_loss && !(*options.target_loss > 0 && std::isfinite(*options.target_loss))) {
    throw InputError("--target-loss " + print_number(*options.target_loss) +
                     " will not do; it takes a validation loss, a number above 0");
  }
  constexpr std::uint64_t kLastSeed = std::numeric_limits<std::int64_t>::max();
  if (options.config.train.seed > kLastSeed - static_cast<std::uint64_t>(options.seeds - 1)) {
    throw InputError("--seeds " + std::to_string(options.seeds) + ": train.seed = " +
                     std::to_string(options.config.train.seed) + " leaves no room for as many");
  }
  std::vector<std::vector<TrainOptions>> runs;
  for (std::size_t i = 0; i < options.strategies.size(); ++i) {
    const Config config = with_strategy(options.config, options.strategies[i]);
    const fs::path folder = fs::path(options.run_folder) / folder_name(i, options.strategies[i]);
    std::vector<TrainOptions>& seeds = runs.emplace_back();
    for (int s = 0; s < options.seeds; ++s) {
      TrainOptions run;
      run.config = config;
      run.config.train.seed += static_cast<std::uint64_t>(s);
      run.run_folder = options.seeds == 1
                           ? folder.string()
                           : (folder / ("seed-" + std::to_string(run.config.train.seed))).string();
      run.quiet = options.quiet;
      if (options.target_loss) {
        run.stop = [target = *options.target_loss](const TrainResult& result) {
          return !result.validations.empty() && result.validations.back().loss <= target;
        };
      }
      seeds.push_back(std::move(run));
    }
  }
  return runs;
}

/// The index of plain symi: where several have settings, the one whose capacity is
/// the mean load. -1: symi takes no part.
int find_symi(const std::vector<std::vector<TrainOptions>>& runs) {
  int found = -1;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const plan::StrategyOptions& strategy = runs[i].front().config.strategy;
    if (strategy.name == "symi" && (found < 0 || strategy.capacity_factor == 1.0)) {
      if (strategy.capacity_factor == 1.0) {
        return static_cast<int>(i);
      }
      found = static_cast<int>(i);
    }
  }
  return found;
}

using Steps = std::vector<StepMetrics>;

std::optional<double> last_validation(const Steps& steps) {
  std::optional<double> loss;
  for (const StepMetrics& step : steps) {
    loss = step.validation_loss ? step.validation_loss : loss;
  }
  return loss;
}

/// Steps until the validation loss came down to the target; between two evaluations
/// the loss is taken to fall on a line where `interpolate` says so.
std::optional<double> steps_to(const Steps& steps, double target, bool interpolate) {
  const StepMetrics* before = nullptr;
  for (const StepMetrics& step : steps) {
    if (!step.validation_loss) {
      continue;
    }
    if (*step.validation_loss <= target) {
      const auto end = static_cast<double>(step.step);
      if (!interpolate || before == nullptr) {
        return end;
      }
      const auto begin = static_cast<double>(before->step);
      const double part =
          (*before->validation_loss - target) / (*before->validation_loss - *step.validation_loss);
      return begin + part * (end - begin);
    }
    before = &step;
  }
  return {};
}

/// Figures up to `end` steps; of a step that only a part counts of, so much of its seconds.
CompareFigures figures_of(const Steps& steps, double end) {
  CompareFigures f;
  double variance = 0, retained = 0, counted = 0;
  for (const StepMetrics& step : steps) {
    const double part = std::clamp(end - static_cast<double>(step.step - 1), 0.0, 1.0);
    f.moe_seconds_per_step += step.moe_seconds;
    f.final_loss = step.loss;
    f.validation_loss = step.validation_loss.value_or(f.validation_loss);
    if (part <= 0) {
      continue;
    }
    f.steps += part;
    f.moe_seconds += part * step.moe_seconds;
    f.moe_forward_seconds += part * step.moe.moe_forward_seconds;
    f.moe_backward_seconds += part * step.moe.moe_backward_seconds;
    f.moe_exchange_seconds += part * step.moe.moe_exchange_seconds;
    f.moe_update_seconds += part * step.moe.moe_update_seconds;
    f.total_seconds += part * step.seconds;
    f.measured_moe_seconds +=
        part * (step.measured ? step.measured->moe_seconds : step.moe_seconds);
    f.measured_total_seconds += part * (step.measured ? step.measured->seconds : step.seconds);
    f.dropped_pairs += static_cast<double>(step.moe.dropped_pairs);
    f.memory_subtotal =
        std::max(f.memory_subtotal, static_cast<double>(step.moe.memory_peak_bytes));
    variance += step.moe.added_variance;
    retained += step.moe.retained_ratio;
    counted += 1;
  }
  if (counted > 0) {
    f.moe_seconds_per_step /= static_cast<double>(steps.size());
    f.added_variance = variance / counted;
    f.retained_ratio = retained / counted;
  }
  return f;
}

void summarise(CompareRow& row) {
  row.reached = true;
  std::vector<CompareFigures> figures;
  for (const CompareRun& run : row.runs) {
    row.reached = row.reached && run.reached;
    figures.push_back(run.figures);
  }
  row.mean = mean_of(figures);
  row.least = least_of(figures);
  row.most = most_of(figures);
}

/// Steps of every run, [strategy][seed], as their metrics tell them.
std::vector<std::vector<Steps>> train_all(const CompareOptions& options,
                                          const std::vector<std::vector<TrainOptions>>& runs,
                                          const TrainFunction& train) {
  std::vector<std::vector<Steps>> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<Steps>& seeds = all.emplace_back();
    for (const TrainOptions& run : runs[i]) {
      try {
        train(run);
      } catch (const RunError& error) {
        throw RunError("strategy " + quote(options.strategies[i]) + ": " + error.what());
      }
      seeds.push_back(read_metrics(fs::path(run.run_folder) / "metrics.jsonl"));
    }
  }
  return all;
}

}  // namespace

std::vector<std::string> split_strategies(const std::string& list) {
  std::vector<std::string> specs;
  for (const std::string& part : split(list, ',')) {
    specs.push_back(trimmed(part));
    if (specs.back().empty()) {
      throw InputError("--strategies " + one_line(list) +
                       ": a name is missing; write names with commas between, as in fixed,symi");
    }
    if (std::count(specs.begin(), specs.end(), specs.back()) > 1) {
      throw InputError("--strategies " + one_line(list) + ": " + quote(specs.back()) +
                       " stands there twice; name it once (--seeds repeats with other seeds)");
    }
  }
  return specs;
}

Comparison compare(const CompareOptions& options, const TrainFunction& train) {
  const std::vector<std::vector<TrainOptions>> runs = plan_runs(options);
  make_empty_folder(options.run_folder);
  const std::vector<std::vector<Steps>> steps = train_all(options, runs, train);

  const int symi = find_symi(runs);
  Comparison comparison;
  comparison.clock = clock_name(options.config);
  comparison.clock_words = clock_words(options.config);
  comparison.target_given = options.target_loss.has_value();
  comparison.baseline = symi < 0 ? "" : options.strategies[static_cast<std::size_t>(symi)];
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CompareRow& row = comparison.rows.emplace_back();
    row.strategy = options.strategies[i];
    row.activations = plan::name_of(plan::activations_of(runs[i].front().config.strategy));
    for (std::size_t s = 0; s < runs[i].size(); ++s) {
      CompareRun& run = row.runs.emplace_back();
      run.seed = runs[i][s].config.train.seed;
      run.run_folder = runs[i][s].run_folder;
      run.target_loss = options.target_loss;
      if (!options.target_loss && symi >= 0) {
        run.target_loss = last_validation(steps[static_cast<std::size_t>(symi)][s]);
      }
      const auto end = run.target_loss
                           ? steps_to(steps[i][s], *run.target_loss, !options.target_loss)
                           : std::nullopt;
      run.reached = end.has_value();
      run.figures = figures_of(steps[i][s], end.value_or(std::numeric_limits<double>::infinity()));
    }
  }
  for (CompareRow& row : comparison.rows) {
    for (std::size_t s = 0; symi >= 0 && s < row.runs.size(); ++s) {
      CompareRun& run = row.runs[s];
      const CompareRun& base = comparison.rows[static_cast<std::size_t>(symi)].runs[s];
      const bool comparable = !run.target_loss || (run.reached && base.reached);
      if (comparable && base.figures.moe_seconds > 0) {
        run.figures.against_symi = run.figures.moe_seconds / base.figures.moe_seconds;
      }
    }
    summarise(row);
  }
  if (!comparison.rows.empty() && comparison.rows.front().runs.front().target_loss) {
    double sum = 0;
    for (const CompareRun& run : comparison.rows.front().runs) {
      sum += run.target_loss.value_or(std::numeric_limits<double>::quiet_NaN());
    }
    comparison.target_loss = sum / options.seeds;
  }
  write_file(fs::path(options.run_folder) / "compare.json", to_compare_json(comparison));
  return comparison;
}

}  // namespace lrmoe::train
