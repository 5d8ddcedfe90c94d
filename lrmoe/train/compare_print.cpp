#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"
#include "lrmoe/base/text_table.h"
#include "lrmoe/train/compare_figures.h"

namespace lrmoe::train {
namespace {

using Json = nlohmann::ordered_json;

Json real(std::optional<double> x) {
  return x && std::isfinite(*x) ? Json(*x) : Json(nullptr);
}

/// Counts stay whole numbers; their means may be none.
Json count(double x) {
  return x == std::floor(x) && std::abs(x) < 9e15 ? Json(static_cast<std::int64_t>(x)) : real(x);
}

void put_figures(Json& json, const CompareFigures& figures) {
  visit_figures(figures, [&](const std::string_view name, double x) {
    const bool counted = name == "steps" || name == "memory_subtotal" || name == "dropped_pairs";
    json[std::string(name)] = counted ? count(x) : real(x);
  });
  json["against_symi"] = real(figures.against_symi);
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

/// Seconds of one column group in one unit, with so many decimals that the largest
/// shows four digits.
class Seconds {
 public:
  explicit Seconds(double largest) : milli_(largest < 1.0) {
    const double most = largest * (milli_ ? 1e3 : 1.0);
    decimals_ = most > 0 ? std::clamp(3 - static_cast<int>(std::floor(std::log10(most))), 0, 4) : 0;
  }
  std::string unit() const { return milli_ ? "ms" : "s"; }
  std::string operator()(double seconds) const {
    return print("%.*f", decimals_, seconds * (milli_ ? 1e3 : 1.0));
  }

 private:
  bool milli_;
  int decimals_ = 0;
};

using Rows = TextRows;

double largest(const Comparison& comparison, double CompareFigures::*member) {
  double most = 0;
  for (const CompareRow& row : comparison.rows) {
    most = std::max(most, row.most.*member);
  }
  return most;
}

/// The mean, and with several seeds the range below it.
template <class Cells>
void add_rows(Rows& table, const CompareRow& row, Cells cells) {
  table.push_back(cells(row.mean));
  table.back().insert(table.back().begin(), row.strategy);
  if (row.runs.size() > 1) {
    table.push_back(cells(row.least));
    table.back().insert(table.back().begin(), "  least");
    table.push_back(cells(row.most));
    table.back().insert(table.back().begin(), "  most");
  }
}

std::string time_table(const Comparison& comparison) {
  const Seconds moe(largest(comparison, &CompareFigures::moe_seconds));
  const Seconds total(largest(comparison, &CompareFigures::total_seconds));
  const Seconds step(largest(comparison, &CompareFigures::moe_seconds_per_step));
  Rows table{{"strategy", "steps", "MoE " + moe.unit(), "forward", "backward", "update", "exchange",
              "total " + total.unit(), "MoE/symi", "MoE " + step.unit() + "/step"}};
  for (const CompareRow& row : comparison.rows) {
    const bool shown = row.reached || !comparison.target_loss;
    add_rows(table, row, [&](const CompareFigures& f) {
      const auto show = [&](const std::string& text) { return shown ? text : "-"; };
      return std::vector<std::string>{
          show(print(f.steps == std::floor(f.steps) ? "%.0f" : "%.1f", f.steps)),
          show(moe(f.moe_seconds)),
          show(moe(f.moe_forward_seconds)),
          show(moe(f.moe_backward_seconds)),
          show(moe(f.moe_update_seconds)),
          show(moe(f.moe_exchange_seconds)),
          show(total(f.total_seconds)),
          f.against_symi ? print("%.3f", *f.against_symi) : "-",
          step(f.moe_seconds_per_step)};
    });
  }
  return aligned(table);
}

std::string cost_table(const Comparison& comparison) {
  const Seconds wall(largest(comparison, &CompareFigures::measured_total_seconds));
  Rows table{{"strategy", "loss", "validation", "kept", "added variance", "dropped", "activations",
              "memory", "wall " + wall.unit()}};
  for (const CompareRow& row : comparison.rows) {
    add_rows(table, row, [&](const CompareFigures& f) {
      return std::vector<std::string>{print_loss(f.final_loss),
                                      print_loss(f.validation_loss),
                                      print("%.1f%%", 100 * f.retained_ratio),
                                      print("%.4g", f.added_variance),
                                      print("%.0f", f.dropped_pairs),
                                      row.activations,
                                      print_size(static_cast<std::int64_t>(f.memory_subtotal)),
                                      wall(f.measured_total_seconds)};
    });
  }
  return aligned(table);
}

std::string target_words(const Comparison& comparison) {
  if (!comparison.target_loss) {
    return "No target: times are those of all steps.\n";
  }
  const bool several = !comparison.rows.empty() && comparison.rows.front().runs.size() > 1;
  std::string text = "Target: validation loss " + print_loss(*comparison.target_loss);
  if (comparison.target_given) {
    return text + ", taken as reached at the first evaluation that is not above it.\n";
  }
  return text + (several ? " in the mean of the seeds" : "") + ", with which " +
         comparison.baseline +
         " ended (none was given). Steps and seconds to it are interpolated between "
         "evaluations; losses are those of each run's end.\n";
}

std::string not_reached(const Comparison& comparison) {
  std::string text;
  for (const CompareRow& row : comparison.rows) {
    if (row.reached || !comparison.target_loss) {
      continue;
    }
    const auto reached = std::count_if(row.runs.begin(), row.runs.end(),
                                       [](const CompareRun& r) { return r.reached; });
    text += row.strategy + " did not reach the target";
    if (row.runs.size() > 1) {
      text += " with " + std::to_string(row.runs.size() - static_cast<std::size_t>(reached)) +
              " of " + std::to_string(row.runs.size()) + " seeds";
    }
    text += row.strategy == comparison.baseline ? ": nothing is compared with it.\n"
                                                : ": it is compared with nothing.\n";
  }
  return text;
}

}  // namespace

std::string to_compare_json(const Comparison& comparison) {
  Json json{{"format", "lrmoe-compare"},
            {"version", 1},
            {"target_loss", real(comparison.target_loss)},
            {"target_given", comparison.target_given},
            {"interpolated", comparison.target_loss && !comparison.target_given},
            {"baseline", comparison.baseline.empty() ? Json(nullptr) : Json(comparison.baseline)},
            {"clock", comparison.clock},
            {"clock_words", comparison.clock_words},
            {"results", Json::array()}};
  for (const CompareRow& row : comparison.rows) {
    Json result{
        {"strategy", row.strategy}, {"activations", row.activations}, {"reached", row.reached}};
    put_figures(result, row.mean);
    result["run"] = row.runs.front().run_folder;
    if (row.runs.size() > 1) {
      put_figures(result["min"] = Json::object(), row.least);
      put_figures(result["max"] = Json::object(), row.most);
      for (const CompareRun& run : row.runs) {
        Json seed{
            {"seed", run.seed}, {"reached", run.reached}, {"target_loss", real(run.target_loss)}};
        put_figures(seed, run.figures);
        seed["run"] = run.run_folder;
        result["seeds"].push_back(std::move(seed));
      }
    }
    json["results"].push_back(std::move(result));
  }
  return json.dump(2) + "\n";
}

std::string to_compare_text(const Comparison& comparison) {
  const bool modelled = comparison.clock != "measured";
  std::string text = "Clock: " + comparison.clock_words + ".";
  text += modelled ? " MoE and total seconds are modelled, the wall's are measured; losses, "
                     "counts and memory are the run's.\n"
                   : " Seconds are wall time of this machine.\n";
  text += target_words(comparison);
  text += "\n" + time_table(comparison) + "\n" + cost_table(comparison) + "\n";
  text += "MoE = forward + backward + update; exchange is within forward and backward.\n";
  text += not_reached(comparison);
  if (comparison.baseline.empty()) {
    text += "No symi among the strategies: no ratios against it.\n";
  } else {
    text += "MoE/symi: MoE seconds over those of " + comparison.baseline +
            (comparison.target_loss ? ", both to the target.\n" : ", both of all steps.\n");
  }
  return text;
}

}  // namespace lrmoe::train
