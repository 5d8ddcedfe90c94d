// Rules that hold for every plan of every strategy, on random cases that shrink.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/json.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

/// The same cases in every run; RC_PARAMS from outside wins.
const bool kSeeded = [] {
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

int number(int low, int high) {
  return *rc::gen::inRange(low, high + 1);
}

std::vector<std::int32_t> numbers(std::size_t count, int below) {
  return *rc::gen::container<std::vector<std::int32_t>>(
      count, rc::gen::weightedOneOf<std::int32_t>({{2, rc::gen::just(0)},
                                                   {5, rc::gen::inRange(0, below)},
                                                   {1, rc::gen::inRange(0, 20 * below)}}));
}

Case random_case(const std::vector<std::string>& names) {
  Case c;
  c.cluster.ranks = number(1, 9);
  c.cluster.experts = number(1, 16);
  const int least = (c.cluster.experts + c.cluster.ranks - 1) / c.cluster.ranks;
  c.cluster.slots = std::min(c.cluster.experts, least + number(0, 2));
  c.cluster.top_k = number(1, c.cluster.experts);
  c.cluster.ranks_per_node = number(0, 4);
  const auto cells = static_cast<std::size_t>(c.cluster.ranks * c.cluster.experts);
  c.demand = Counts(c.cluster.ranks, c.cluster.experts);
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
  c.options.lrmoe.activations = number(0, 1) == 0 ? Activations::keep : Activations::recompute;
  c.draw = number(0, (1 << 24) - 1);
  c.shortlist = number(0, 3) == 0;
  c.evaluate = number(0, 9) == 0;
  return c;
}

ScoreCurves curves_of(const Case& c) {
  ScoreCurves curves(c.cluster.experts);
  ScoreHistogram step(c.cluster.experts);
  constexpr std::array kScores = {0.25F, 1.0F, 4.0F, 0.0F};
  for (std::size_t i = 0; i < c.scores.size(); ++i) {
    step.add(static_cast<int>(i / 4), kScores[i % 4], c.scores[i]);
  }
  curves.update(step);
  return curves;
}

RouteInput input_of(const Case& c, const Strategy& strategy, const ScoreCurves& curves) {
  RouteInput input{c.cluster, c.demand, strategy.initial(c.cluster), c.evaluate};
  input.curves = &curves;
  input.listed = c.shortlist ? &c.listed : nullptr;
  input.draw = c.draw;
  input.placement = strategy.place(c.cluster, c.demand, input.placement, &curves);
  return input;
}

/// The invariants of the file format, written down once more.
void check_independently(const Plan& plan) {
  using Key = std::array<int, 3>;
  std::map<Key, std::int64_t> forward, backward;
  std::map<std::array<int, 2>, std::int64_t> computed, kept;
  for (const Route& route : plan.forward) {
    forward[{route.source, route.expert, route.rank}] += route.pairs;
    computed[{route.source, route.expert}] += route.pairs;
  }
  for (const Route& route : plan.backward) {
    backward[{route.source, route.expert, route.rank}] += route.pairs;
    kept[{route.source, route.expert}] += route.pairs;
  }
  for (int r = 0; r < plan.cluster.ranks; ++r) {
    for (int e = 0; e < plan.cluster.experts; ++e) {
      const std::int64_t sum = computed[{r, e}] + plan.dropped.at(r, e);
      RC_ASSERT(sum == plan.demand.at(r, e));
      const std::int64_t retained = kept[{r, e}];
      RC_ASSERT(retained == plan.quota.at(r, e));
    }
  }
  for (const Split* split : {&plan.forward, &plan.backward}) {
    for (const Route& route : *split) {
      const auto row = plan.placement.row(route.rank);
      RC_ASSERT(std::find(row.begin(), row.end(), route.expert) != row.end());
    }
  }
  const bool stays = plan.keep_all || (!plan.cells.empty() && plan.cells[0].rank >= 0);
  if (stays) {
    for (const auto& [key, pairs] : backward) {
      const std::int64_t there = forward[key];
      RC_ASSERT(pairs <= there);
    }
  }
}

std::int64_t largest(const Split& split, int ranks) {
  return std::ranges::max(rank_loads(split, ranks));
}

TEST(Property, EveryPlanKeepsItsRulesAndItsRanksFindTheirParts) {
  holds([] {
    const Case c = random_case(strategy_names());
    const auto strategy = make_strategy(c.options);
    const ScoreCurves curves = curves_of(c);
    const RouteInput input = input_of(c, *strategy, curves);
    const Plan plan = strategy->route(input);
    check_plan(plan);
    check_independently(plan);
    static RouteScratch scratch;
    const int rank = number(0, c.cluster.ranks - 1);
    RC_ASSERT(strategy->route_rank(input, rank, scratch) == part_of(plan, rank));
    if (!plan.keep_all && c.options.lrmoe.variance == 0.0) {
      // Quotas sum to the target: exactly, up to where the draw cuts the line.
      const std::int64_t offered = total_pairs(c.shortlist ? c.listed : c.demand);
      const auto target = static_cast<double>(total_pairs(c.demand)) * c.options.lrmoe.ratio;
      const double most = std::min(target, static_cast<double>(offered));
      RC_ASSERT(std::abs(static_cast<double>(total_pairs(plan.quota)) - most) <= 1.001);
    }
  });
}

TEST(Property, TheSameInputsGiveTheSameBytes) {
  holds([] {
    const Case c = random_case(strategy_names());
    const ScoreCurves curves = curves_of(c);
    const auto once = make_strategy(c.options);
    const auto again = make_strategy(c.options);
    const Plan plan = once->route(input_of(c, *once, curves));
    const Plan other = again->route(input_of(c, *again, curves));
    RC_ASSERT(to_json(plan, 0.0).dump() == to_json(other, 0.0).dump());
    RC_ASSERT(plan.cells == other.cells);
  });
}

std::vector<int> random_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(number(0, static_cast<int>(i) - 1))]);
  }
  return order;
}

/// The case and its placement with other names for ranks and experts.
RouteInput renamed(const RouteInput& input, const std::vector<int>& ranks,
                   const std::vector<int>& experts) {
  RouteInput out = input;
  for (int r = 0; r < input.cluster.ranks; ++r) {
    const int to = ranks[static_cast<std::size_t>(r)];
    for (int e = 0; e < input.cluster.experts; ++e) {
      out.demand.at(to, experts[static_cast<std::size_t>(e)]) = input.demand.at(r, e);
    }
    for (int s = 0; s < input.cluster.slots; ++s) {
      const std::int32_t e = input.placement.at(r, s);
      out.placement.at(to, s) = e < 0 ? e : experts[static_cast<std::size_t>(e)];
    }
  }
  return out;
}

// With the placement renamed too: what a plan is worth does not depend on names.
//  - the largest forward load is an optimum, so equal; the largest backward load of
//    mode recompute is an optimum over integer quotas, and these, as the kept pairs of
//    an instance in mode keep, are real quotas that the draw rounds, up or down by
//    where they lie on the line: at most one pair per expert of the rank apart;
//  - the added variance is the same sum in another order: equal up to rounding. In mode
//    keep it follows the forward loads of the instances, and where several optimal
//    splits exist another may be found: then it may differ by what the slack allows;
//  - memory: of the optimal splits another one may be found, and rows follow how sources
//    are cut: weights are equal, the fullest rank's pairs too, the rest is close.
TEST(Property, NamesOfRanksAndExpertsDoNotMatter) {
  double apart = 0.0;
  double variance_apart = 0.0;
  holds([&] {
    Case c = random_case({"lrmoe"});
    c.shortlist = false;
    c.cluster.ranks_per_node = 0;  // nodes are consecutive ranks: their names do matter
    c.options.lrmoe.variance = 0.0;
    const auto strategy = make_strategy(c.options);
    const ScoreCurves curves = curves_of(c);
    const RouteInput input = input_of(c, *strategy, curves);
    const auto experts = random_order(c.cluster.experts);
    RouteInput other = renamed(input, random_order(c.cluster.ranks), experts);
    Case same = c;
    for (std::size_t i = 0; i < c.scores.size(); ++i) {
      same.scores[4 * static_cast<std::size_t>(experts[i / 4]) + i % 4] = c.scores[i];
    }
    const ScoreCurves other_curves = curves_of(same);
    other.curves = &other_curves;
    const Plan a = strategy->route(input);
    const Plan b = strategy->route(other);
    RC_ASSERT(largest(a.forward, c.cluster.ranks) == largest(b.forward, c.cluster.ranks));
    RC_ASSERT(a.keep_all == b.keep_all);
    const std::int64_t one = c.cluster.slots;
    const std::int64_t back = largest(a.backward, c.cluster.ranks);
    const std::int64_t other_back = largest(b.backward, c.cluster.ranks);
    if (c.options.lrmoe.activations == Activations::recompute) {
      RC_ASSERT(std::abs(back - other_back) <= one);
      RC_ASSERT(std::abs(a.added_variance - b.added_variance) <=
                1e-4 * std::abs(a.added_variance) + 1e-9);
    } else if (a.added_variance > 0.0) {
      variance_apart = std::max(variance_apart,
                                std::abs(b.added_variance - a.added_variance) / a.added_variance);
    }
    MemoryModel model{.hidden = 64, .width = 32};
    model.activations = c.options.lrmoe.activations;
    const MemoryTerms memory = fullest(memory_terms(a, model));
    const MemoryTerms other_memory = fullest(memory_terms(b, model));
    if (total_pairs(c.demand) > 20 * c.cluster.ranks) {
      apart = std::max(apart, std::abs(static_cast<double>(other_memory.total()) /
                                           static_cast<double>(memory.total()) -
                                       1.0));
    }
  });
  std::cout << "names of ranks and experts: fullest rank's memory at most " << 100 * apart
            << "% apart, added variance of mode keep " << 100 * variance_apart << "%\n";
}

// More slots leave the split more freedom; the placement keeps what it has where that is
// nearly as good.
TEST(Property, AnAddedInstanceNeverWorsensTheSplit) {
  holds([] {
    const int ranks = number(1, 8);
    const int experts = number(1, 12);
    Instances instances(static_cast<std::size_t>(experts));
    std::vector<std::int64_t> pairs;
    for (auto& there : instances) {
      there.push_back(number(0, ranks - 1));
      pairs.push_back(number(0, 200));
    }
    std::int64_t before = min_max_split(pairs, instances, ranks).largest;
    for (int added = number(1, 6); added > 0; --added) {
      auto& there = instances[static_cast<std::size_t>(number(0, experts - 1))];
      there.push_back(number(0, ranks - 1));
      std::sort(there.begin(), there.end());
      there.erase(std::unique(there.begin(), there.end()), there.end());
      const std::int64_t now = min_max_split(pairs, instances, ranks).largest;
      RC_ASSERT(now <= before);
      before = now;
    }
  });
}

TEST(Property, AnAddedSlotHardlyEverWorsensTheBalance) {
  double worst = 0.0;
  int cases = 0;
  holds([&] {
    Case c = random_case({"lrmoe"});
    if (c.cluster.slots >= c.cluster.experts || total_pairs(c.demand) < 50 * c.cluster.ranks) {
      return;
    }
    const auto strategy = make_strategy(c.options);
    const ScoreCurves curves = curves_of(c);
    const auto balance = [&](const Cluster& cluster) {
      const Placement placement =
          strategy->place(cluster, c.demand, strategy->initial(cluster), &curves);
      return min_max_split(pairs_per_expert(c.demand), instances_of(placement, cluster.experts),
                           cluster.ranks)
          .largest;
    };
    Cluster more = c.cluster;
    ++more.slots;
    const double change =
        static_cast<double>(balance(more)) / static_cast<double>(balance(c.cluster)) - 1.0;
    worst = std::max(worst, change);
    ++cases;
  });
  std::cout << "a slot more: the largest forward load rose by " << 100 * worst << "% at most, of "
            << cases << " cases\n";
  EXPECT_GT(cases, 100);
}

}  // namespace
}  // namespace lrmoe::plan
