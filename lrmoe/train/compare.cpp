#include "lrmoe/train/compare.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"
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

/// Sums over the steps that count, from the run's own metrics.
void add_steps(CompareRow& row) {
  double variance = 0;
  std::int64_t steps = 0;
  for (const StepMetrics& step : read_metrics(fs::path(row.run_folder) / "metrics.jsonl")) {
    if (step.step > row.steps) {
      break;
    }
    ++steps;
    row.final_loss = step.loss;
    row.moe_forward_seconds += step.moe.moe_forward_seconds;
    row.moe_backward_seconds += step.moe.moe_backward_seconds;
    row.moe_exchange_seconds += step.moe_exchange_seconds;
    row.moe_update_seconds += step.moe_update_seconds;
    row.dropped_pairs += step.moe.dropped_pairs;
    row.memory_subtotal = std::max(row.memory_subtotal, step.moe.memory_peak_bytes);
    variance += step.moe.added_variance;
  }
  row.added_variance = steps > 0 ? variance / static_cast<double>(steps) : 0;
}

CompareRow row_of(const std::string& spec, const std::string& folder, const TrainResult& result,
                  std::optional<double> target) {
  CompareRow row;
  row.strategy = spec;
  row.run_folder = folder;
  row.steps = result.steps;
  row.moe_seconds = result.moe_seconds;
  row.total_seconds = result.total_seconds;
  for (const Validation& validation : result.validations) {
    row.validation_loss = validation.loss;
    if (target && validation.loss <= *target) {
      row.reached = true;
      row.steps = validation.step;
      row.moe_seconds = validation.moe_seconds;
      row.total_seconds = validation.total_seconds;
      break;
    }
  }
  add_steps(row);
  return row;
}

/// Plain `symi` where it takes part, else symi with settings.
const CompareRow* find_symi(const std::vector<CompareRow>& rows) {
  const CompareRow* found = nullptr;
  for (const CompareRow& row : rows) {
    if (row.strategy == "symi") {
      return &row;
    }
    if (found == nullptr && row.strategy.starts_with("symi:")) {
      found = &row;
    }
  }
  return found;
}

void set_against_symi(std::vector<CompareRow>& rows, bool has_target) {
  const CompareRow* symi = find_symi(rows);
  if (symi == nullptr || symi->moe_seconds <= 0 || (has_target && !symi->reached)) {
    return;
  }
  const double base = symi->moe_seconds;
  for (CompareRow& row : rows) {
    if (!has_target || row.reached) {
      row.against_symi = row.moe_seconds / base;
    }
  }
}

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string print_loss(double loss) {
  return std::isfinite(loss) ? print("%.4f", loss) : "-";
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
  }
  return specs;
}

std::vector<CompareRow> compare(const CompareOptions& options, const TrainFunction& train) {
  std::vector<TrainOptions> runs;
  for (std::size_t i = 0; i < options.strategies.size(); ++i) {
    TrainOptions run;
    run.config = with_strategy(options.config, options.strategies[i]);
    run.run_folder =
        (fs::path(options.run_folder) / folder_name(i, options.strategies[i])).string();
    run.quiet = options.quiet;
    if (options.target_loss) {
      run.stop = [target = *options.target_loss](const TrainResult& result) {
        return !result.validations.empty() && result.validations.back().loss <= target;
      };
    }
    runs.push_back(std::move(run));
  }
  make_empty_folder(options.run_folder);

  std::vector<CompareRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string& spec = options.strategies[i];
    try {
      const TrainResult result = train(runs[i]);
      rows.push_back(row_of(spec, runs[i].run_folder, result, options.target_loss));
    } catch (const RunError& error) {
      throw RunError("strategy " + quote(spec) + ": " + error.what());
    }
  }
  set_against_symi(rows, options.target_loss.has_value());
  write_file(fs::path(options.run_folder) / "compare.json",
             to_compare_json(rows, options.target_loss));
  return rows;
}

std::string to_compare_json(const std::vector<CompareRow>& rows,
                            std::optional<double> target_loss) {
  using Json = nlohmann::ordered_json;
  const auto number = [](std::optional<double> x) {
    return x && std::isfinite(*x) ? Json(*x) : Json(nullptr);
  };
  Json json{{"format", "lrmoe-compare"},
            {"version", 1},
            {"target_loss", number(target_loss)},
            {"clock", "measured"},
            {"results", Json::array()}};
  for (const CompareRow& row : rows) {
    json["results"].push_back({{"strategy", row.strategy},
                               {"reached", row.reached},
                               {"steps", row.steps},
                               {"moe_seconds", number(row.moe_seconds)},
                               {"moe_forward_seconds", number(row.moe_forward_seconds)},
                               {"moe_backward_seconds", number(row.moe_backward_seconds)},
                               {"moe_exchange_seconds", number(row.moe_exchange_seconds)},
                               {"moe_update_seconds", number(row.moe_update_seconds)},
                               {"total_seconds", number(row.total_seconds)},
                               {"against_symi", number(row.against_symi)},
                               {"added_variance", number(row.added_variance)},
                               {"final_loss", number(row.final_loss)},
                               {"validation_loss", number(row.validation_loss)},
                               {"memory_subtotal", row.memory_subtotal},
                               {"dropped_pairs", row.dropped_pairs},
                               {"run", row.run_folder}});
  }
  return json.dump(2) + "\n";
}

std::string to_compare_table(const std::vector<CompareRow>& rows) {
  std::vector<std::vector<std::string>> cells{
      {"strategy", "target", "steps", "loss", "validation", "dropped", "MoE s", "forward",
       "backward", "exchange", "update", "total s", "MoE/symi", "memory"}};
  for (const CompareRow& row : rows) {
    cells.push_back({row.strategy, row.reached ? "reached" : "-", std::to_string(row.steps),
                     print_loss(row.final_loss), print_loss(row.validation_loss),
                     std::to_string(row.dropped_pairs), print("%.2f", row.moe_seconds),
                     print("%.2f", row.moe_forward_seconds),
                     print("%.2f", row.moe_backward_seconds),
                     print("%.2f", row.moe_exchange_seconds), print("%.2f", row.moe_update_seconds),
                     print("%.2f", row.total_seconds),
                     row.against_symi ? print("%.2f", *row.against_symi) : "-",
                     print_size(row.memory_subtotal)});
  }
  std::vector<std::size_t> widths(cells[0].size(), 0);
  for (const auto& row : cells) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      // The name stands left, numbers right.
      line += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace lrmoe::train
