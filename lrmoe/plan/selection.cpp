#include "lrmoe/plan/selection.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

double usable(float score) {
  return score > 0.0F ? static_cast<double>(score) : 0.0;
}

// tau such that sum min(1, tau s) = quota, for quota < number of positive scores:
// the largest scores saturate one after the other.
double find_tau(std::span<const float> scores, double quota) {
  std::vector<double> sorted;
  double mass = 0.0;
  for (const float s : scores) {
    if (usable(s) > 0.0) {
      sorted.push_back(usable(s));
      mass += sorted.back();
    }
  }
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double full = 0.0;
  for (const double s : sorted) {
    const double tau = (quota - full) / mass;
    if (tau * s < 1.0) {
      return tau;
    }
    mass -= s;
    full += 1.0;
  }
  return 0.0;  // unreachable for quota < sorted.size(); nothing but rounding gets here
}

// pi in fixed point, summing exactly to the quota: rounded down, at least one
// unit where the score is above zero, the rest spread one unit each.
std::vector<std::int64_t> probabilities(const Cell& cell, std::span<const float> scores) {
  const double tau = find_tau(scores, static_cast<double>(cell.quota) / static_cast<double>(kOne));
  std::vector<std::int64_t> pi(scores.size(), 0);
  std::int64_t rest = cell.quota;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (usable(scores[i]) > 0.0) {
      const double p = std::min(1.0, tau * usable(scores[i]));
      pi[i] = std::max<std::int64_t>(static_cast<std::int64_t>(p * static_cast<double>(kOne)), 1);
      rest -= pi[i];
    }
  }
  while (rest != 0) {
    const std::int64_t before = rest;
    for (auto& p : pi) {
      if (rest > 0 && p > 0 && p < kOne) {
        const auto step = std::min(
            kOne - p, std::max<std::int64_t>(rest / static_cast<std::int64_t>(pi.size()), 1));
        p += step;
        rest -= step;
      } else if (rest < 0 && p > 1) {
        --p;
        ++rest;
      }
    }
    LRMOE_ASSERT(rest != before, "a cell's probabilities cannot be made to sum to its quota");
  }
  return pi;
}

CellSelection select_top(const Cell& cell, std::span<const float> scores) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const double sa = usable(scores[static_cast<std::size_t>(a)]);
    const double sb = usable(scores[static_cast<std::size_t>(b)]);
    return sa != sb ? sa > sb : a < b;
  };
  const auto keep = order.begin() + cell.keep;
  std::nth_element(order.begin(), keep, order.end(), better);
  std::sort(order.begin(), keep);
  return {{order.begin(), keep}, std::vector<float>(static_cast<std::size_t>(cell.keep), 1.0F)};
}

// Quota at or above the number of positive scores: all of those, then the first others.
CellSelection select_all_positive(const Cell& cell, std::span<const float> scores,
                                  std::int64_t positive) {
  std::int64_t fill = cell.keep - positive;
  CellSelection out;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (usable(scores[i]) > 0.0 || fill-- > 0) {
      out.position.push_back(static_cast<std::int32_t>(i));
      out.weight.push_back(1.0F);
    }
  }
  return out;
}

}  // namespace

CellSelection select_in_cell(const Cell& cell, std::int64_t draw, std::span<const float> scores,
                             SelectMode mode) {
  LRMOE_ASSERT(static_cast<std::int32_t>(scores.size()) == cell.demand,
               "a cell holds another number of pairs than the plan says");
  if (mode == SelectMode::top) {
    return select_top(cell, scores);
  }
  const auto positive = static_cast<std::int64_t>(
      std::count_if(scores.begin(), scores.end(), [](float s) { return usable(s) > 0.0; }));
  if (cell.quota >= positive * kOne) {
    return select_all_positive(cell, scores, positive);
  }
  const auto pi = probabilities(cell, scores);
  CellSelection out;
  std::int64_t end = cell.begin + draw;
  for (std::size_t i = 0; i < pi.size(); ++i) {
    const std::int64_t begin = end;
    end += pi[i];
    if ((end >> kQuotaBits) != (begin >> kQuotaBits)) {
      out.position.push_back(static_cast<std::int32_t>(i));
      out.weight.push_back(
          static_cast<float>(static_cast<double>(kOne) / static_cast<double>(pi[i])));
    }
  }
  LRMOE_ASSERT(static_cast<std::int32_t>(out.position.size()) == cell.keep,
               "a cell kept another number of pairs than its quota");
  return out;
}

std::vector<float> select_pairs(std::span<const Cell> cells, std::int64_t draw,
                                std::span<const std::int32_t> cell_of_pair,
                                std::span<const float> scores, SelectMode mode) {
  std::vector<std::vector<std::int64_t>> pairs(cells.size());
  std::vector<std::vector<float>> cell_scores(cells.size());
  for (std::size_t i = 0; i < cell_of_pair.size(); ++i) {
    if (cell_of_pair[i] >= 0) {
      const auto c = static_cast<std::size_t>(cell_of_pair[i]);
      pairs[c].push_back(static_cast<std::int64_t>(i));
      cell_scores[c].push_back(scores[i]);
    }
  }
  std::vector<float> weight(cell_of_pair.size(), 0.0F);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const CellSelection chosen = select_in_cell(cells[c], draw, cell_scores[c], mode);
    for (std::size_t i = 0; i < chosen.position.size(); ++i) {
      const auto position = static_cast<std::size_t>(chosen.position[i]);
      weight[static_cast<std::size_t>(pairs[c][position])] = chosen.weight[i];
    }
  }
  return weight;
}

std::span<const Cell> cells_of(const Plan& plan, int source) {
  const auto first = std::ranges::lower_bound(plan.cells, source, {}, &Cell::source);
  const auto last = std::ranges::upper_bound(plan.cells, source, {}, &Cell::source);
  return {first, last};
}

}  // namespace lrmoe::plan
