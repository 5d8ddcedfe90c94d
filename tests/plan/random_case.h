// Random cases of the planner that shrink, for its properties.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan::test {

/// The same cases in every run; RC_PARAMS from outside wins.
inline const bool kSeeded = [] {
  return ::setenv("RC_PARAMS", "seed=20240817 max_success=3000", 0) == 0;
}();

template <class F>
void holds(F property) {
  EXPECT_TRUE(rc::check(property));
}

struct Case {
  Cluster cluster;
  Counts demand, listed;
  std::vector<std::int64_t> scores;  // [E * 4] counts of scores 1/4, 1, 4, 0
  StrategyOptions options;
  std::int64_t draw = 0;
  bool shortlist = false;
  bool evaluate = false;
};

inline int number(int low, int high) {
  return *rc::gen::inRange(low, high + 1);
}

inline std::vector<std::int32_t> numbers(std::size_t count, int below) {
  return *rc::gen::container<std::vector<std::int32_t>>(
      count, rc::gen::weightedOneOf<std::int32_t>({{2, rc::gen::just(0)},
                                                   {5, rc::gen::inRange(0, below)},
                                                   {1, rc::gen::inRange(0, 20 * below)}}));
}

inline Case random_case(const std::vector<std::string>& names) {
  Case c;
  c.cluster.ranks = number(1, 9);
  c.cluster.experts = number(1, 16);
  const int least = (c.cluster.experts + c.cluster.ranks - 1) / c.cluster.ranks;
  c.cluster.slots = std::min(c.cluster.experts, least + number(0, 2));
  c.cluster.top_k = number(1, c.cluster.experts);
  c.cluster.ranks_per_node = number(0, 4);
  c.demand = Counts(c.cluster.ranks, c.cluster.experts);
  const std::size_t cells = c.demand.values.size();
  c.demand.values = numbers(cells, 40);
  c.listed = c.demand;
  const std::vector<std::int32_t> shares = numbers(cells, 8);
  for (std::size_t i = 0; i < cells; ++i) {
    c.listed.values[i] = c.demand.values[i] * std::min(shares[i], 8) / 8;
  }
  const auto counts = numbers(4 * static_cast<std::size_t>(c.cluster.experts), 30);
  c.scores.assign(counts.begin(), counts.end());
  c.options.name = names[static_cast<std::size_t>(number(0, static_cast<int>(names.size()) - 1))];
  c.options.capacity_factor = number(0, 2) == 0 ? 1e9 : 0.1 * number(5, 30);
  c.options.lrmoe.ratio = 0.01 * number(1, 100);
  c.options.lrmoe.floor = 0.01 * number(0, 5);
  c.options.lrmoe.slack = 0.01 * number(0, 3);
  c.options.lrmoe.variance = number(0, 5) == 0 ? 0.1 * number(1, 20) : 0.0;
  c.options.lrmoe.activations = static_cast<Activations>(number(0, 2));
  c.draw = number(0, (1 << 24) - 1);
  c.shortlist = number(0, 3) == 0;
  c.evaluate = number(0, 9) == 0;
  return c;
}

inline ScoreCurves curves_of(const Case& c) {
  ScoreCurves curves(c.cluster.experts);
  ScoreHistogram step(c.cluster.experts);
  constexpr std::array kScores = {0.25F, 1.0F, 4.0F, 0.0F};
  for (std::size_t i = 0; i < c.scores.size(); ++i) {
    step.add(static_cast<int>(i / 4), kScores[i % 4], c.scores[i]);
  }
  curves.update(step);
  return curves;
}

inline RouteInput input_of(const Case& c, const Strategy& strategy, const ScoreCurves& curves) {
  RouteInput input{c.cluster, c.demand, strategy.initial(c.cluster), c.evaluate};
  input.curves = &curves;
  input.listed = c.shortlist ? &c.listed : nullptr;
  input.draw = c.draw;
  input.placement = strategy.place(c.cluster, c.demand, input.placement, &curves);
  return input;
}

inline std::int64_t largest(const Split& split, int ranks) {
  return std::ranges::max(rank_loads(split, ranks));
}

}  // namespace lrmoe::plan::test
