// Random inputs for the planner's tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan::test {

using Random = std::mt19937_64;

inline int pick(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// Demand [R, E] of T tokens per rank that choose k distinct experts; expert e is
/// chosen with weight 1 / (1 + e')^skew, e' a shuffle of the experts.
inline Counts random_demand(Random& random, const Cluster& c, int tokens, double skew) {
  std::vector<double> weights;
  for (int e = 0; e < c.experts; ++e) {
    weights.push_back(1.0 / std::pow(1.0 + e, skew));
  }
  std::shuffle(weights.begin(), weights.end(), random);
  Counts demand(c.ranks, c.experts);
  for (int r = 0; r < c.ranks; ++r) {
    for (int t = 0; t < tokens; ++t) {
      auto left = weights;
      for (int k = 0; k < c.top_k; ++k) {
        std::discrete_distribution<int> choose(left.begin(), left.end());
        const int e = choose(random);
        left[static_cast<std::size_t>(e)] = 0.0;
        ++demand.at(r, e);
      }
    }
  }
  return demand;
}

/// Counts [R, E] where many a cell is empty and a few are large.
inline Counts sparse_counts(Random& random, const Cluster& c, int most) {
  Counts counts(c.ranks, c.experts);
  for (auto& pairs : counts.values) {
    const int kind = pick(random, 0, 9);
    pairs = kind < 4 ? 0 : pick(random, 1, kind == 9 ? 10 * most : most);
  }
  return counts;
}

/// Lognormal scores, an expert's scale differing from the others'; a few are zero.
inline ScoreCurves lognormal_curves(Random& random, int experts, int scores) {
  ScoreCurves curves(experts);
  ScoreHistogram step(experts);
  std::normal_distribution<double> normal;
  for (int e = 0; e < experts; ++e) {
    const double scale = std::exp(normal(random));
    for (int i = 0; i < scores; ++i) {
      step.add(e, pick(random, 0, 19) == 0 ? 0.0F
                                           : static_cast<float>(scale * std::exp(normal(random))));
    }
  }
  curves.update(step);
  return curves;
}

/// The message of the exception of type E that `f` throws, or "" (a failed test).
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace lrmoe::plan::test
