#include "lrmoe/train/compare_figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lrmoe/base/error.h"

namespace lrmoe::train {
namespace {

std::vector<double> values_of(const CompareFigures& figures) {
  std::vector<double> values;
  visit_figures(figures, [&](const char*, double x) { values.push_back(x); });
  return values;
}

template <class Fold>
CompareFigures fold(const std::vector<CompareFigures>& runs, Fold fold_values) {
  LRMOE_ASSERT(!runs.empty(), "a comparison without runs");
  std::vector<std::vector<double>> columns;  // of each figure, the runs' values
  std::vector<double> ratios;
  for (const CompareFigures& run : runs) {
    const std::vector<double> values = values_of(run);
    columns.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      columns[i].push_back(values[i]);
    }
    if (run.against_symi) {
      ratios.push_back(*run.against_symi);
    }
  }
  CompareFigures out;
  std::size_t next = 0;
  visit_figures(out, [&](const char*, double& x) { x = fold_values(columns[next++]); });
  if (ratios.size() == runs.size()) {
    out.against_symi = fold_values(ratios);
  }
  return out;
}

}  // namespace

CompareFigures mean_of(const std::vector<CompareFigures>& runs) {
  return fold(runs, [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  });
}

CompareFigures least_of(const std::vector<CompareFigures>& runs) {
  return fold(runs, [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  });
}

CompareFigures most_of(const std::vector<CompareFigures>& runs) {
  return fold(runs, [](const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
  });
}

}  // namespace lrmoe::train
