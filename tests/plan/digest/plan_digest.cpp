// Plans a list of generated cases and prints one line a case: what was planned, and a
// digest of the plan's bytes. The same lines must come from every compiler, optimisation
// level and instruction set (compare.sh).
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/plan/budget.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/selection.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {
namespace {

/// Random numbers that need no library.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  int up_to(int most) { return static_cast<int>(next() % (static_cast<std::uint64_t>(most) + 1)); }
  std::uint64_t next() { return state_ = hash({state_, 1}); }

 private:
  std::uint64_t state_;
};

class Digest {
 public:
  void add(std::uint64_t value) { value_ = hash({value_, value}); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  template <class T>
  requires std::is_integral_v<T>
  void add(T value) { add(static_cast<std::uint64_t>(value)); }
  template <class T>
  void add(const Table<T>& table) {
    add(table.rows);
    add(table.cols);
    for (const T value : table.values) {
      add(value);
    }
  }
  void add(const Split& split) {
    for (const Route& route : split) {
      for (const std::int32_t value : {route.source, route.expert, route.rank, route.pairs}) {
        add(value);
      }
    }
    add(split.size());
  }
  void add(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) {
      for (const std::int32_t value :
           {cell.source, cell.expert, cell.rank, cell.demand, cell.keep}) {
        add(value);
      }
      add(cell.quota);
      add(cell.begin);
    }
    add(cells.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

std::uint64_t digest_of(const Plan& plan) {
  Digest digest;
  digest.add(plan.demand);
  digest.add(plan.quota);
  digest.add(plan.dropped);
  digest.add(plan.placement);
  digest.add(plan.forward);
  digest.add(plan.backward);
  digest.add(plan.cells);
  digest.add(plan.draw);
  digest.add(plan.added_variance);
  digest.add(static_cast<int>(plan.activations));
  digest.add(plan.chunks);
  digest.add(plan.keep_all);
  digest.add(plan.score);
  for (const MemoryTerms& terms : plan.memory) {
    digest.add(terms.total());
  }
  for (const std::string& note : plan.notes) {
    digest.add(hash(note));
  }
  return digest.value();
}

/// What a rank's own planning and its selection come to.
std::uint64_t digest_of(const RankPlan& part, SelectMode mode, Numbers& numbers) {
  Digest digest;
  for (const Split* split : {&part.sends, &part.receives, &part.kept_sends, &part.kept_receives}) {
    digest.add(*split);
  }
  digest.add(part.cells);
  digest.add(part.added_variance);
  for (const std::int64_t load : part.backward_loads) {
    digest.add(load);
  }
  for (const Cell& cell : part.cells) {
    std::vector<float> scores;
    for (int i = 0; i < cell.demand; ++i) {
      const int x = numbers.up_to(999);
      scores.push_back(x < 50 ? 0.0F : static_cast<float>(x * x) * 0.001F);
    }
    const CellSelection chosen = select_in_cell(cell, part.draw, scores, mode);
    for (std::size_t i = 0; i < chosen.position.size(); ++i) {
      digest.add(chosen.position[i]);
      digest.add(std::bit_cast<std::uint32_t>(chosen.weight[i]));
    }
  }
  return digest.value();
}

void plan_case(const std::string& name, int number) {
  Numbers numbers(hash({hash(name), static_cast<std::uint64_t>(number)}));
  Cluster cluster{2 + numbers.up_to(30), 4 + numbers.up_to(60), 0, 2, 0};
  cluster.slots = (cluster.experts + cluster.ranks - 1) / cluster.ranks + 1 + numbers.up_to(1);
  cluster.slots = cluster.slots < cluster.experts ? cluster.slots : cluster.experts;
  cluster.ranks_per_node = number % 3 == 0 ? 4 : 0;
  Counts demand(cluster.ranks, cluster.experts);
  Counts listed = demand;
  for (std::size_t i = 0; i < demand.values.size(); ++i) {
    const auto e = static_cast<int>(i) % cluster.experts;
    demand.values[i] = numbers.up_to(3000 / (1 + (e * 7) % cluster.experts));
    listed.values[i] = numbers.up_to(demand.values[i]);
  }
  ScoreCurves curves(cluster.experts);
  ScoreHistogram scores(cluster.experts);
  for (int e = 0; e < cluster.experts; ++e) {
    for (int i = 0; i < 60; ++i) {
      const float score = static_cast<float>(1 + numbers.up_to(1000)) * 0.001F;
      scores.add(e, score * score * static_cast<float>(1 + e % 7), 1 + numbers.up_to(9));
    }
  }
  curves.update(scores);
  StrategyOptions options;
  options.name = name;
  options.capacity_factor = number % 2 == 0 ? 1.25 : 1e9;
  options.lrmoe.ratio = 0.05 * (1 + numbers.up_to(15));
  options.lrmoe.variance = number % 5 == 0 ? 0.7 : 0.0;
  options.lrmoe.activations = number % 2 == 0 ? Activations::keep : Activations::recompute;
  const auto strategy = make_strategy(options);
  RouteInput input{cluster, demand, strategy->initial(cluster)};
  input.curves = &curves;
  input.listed = number % 4 == 1 ? &listed : nullptr;
  input.draw = static_cast<std::int64_t>(numbers.next() >> (64 - kQuotaBits));
  input.placement = strategy->place(cluster, demand, input.placement, &curves);
  const Plan plan = strategy->route(input);
  check_plan(plan);
  std::printf("%s %d: %d ranks, %d experts, %zu routes, %zu cells, %016llx\n", name.c_str(), number,
              cluster.ranks, cluster.experts, plan.forward.size(), plan.cells.size(),
              static_cast<unsigned long long>(digest_of(plan)));
}

enum class Feature : std::uint8_t {
  plain,
  flat,
  listed,
  variance,
  guard,
  time,
  near,
  in_step,
  budget,
};
constexpr std::array kFeatures = {"plain", "flat", "listed",  "variance", "guard",
                                  "time",  "near", "in-step", "budget"};

/// Numbers such as a cluster with slow links between nodes has.
PlanCosts some_costs() {
  PlanCosts costs;
  costs.forward_pair = 3.1e-8;
  costs.backward_pair = 6.3e-8;
  costs.recompute_pair = 2.1e-8;
  costs.intra_row = 1.7e-8;
  costs.inter_row = 8.9e-8;
  costs.backward_least = 1.1e-4;
  costs.fetch_instance = 2.3e-5;
  return costs;
}

/// The feature's options. The budget is a part of what the plan takes without one.
StrategyOptions options_for(Feature feature, int ranks, int turn) {
  StrategyOptions options;
  options.name = "lrmoe";
  options.lrmoe.activations = static_cast<Activations>((static_cast<int>(feature) + turn) % 3);
  options.lrmoe.ratio = std::array{0.25, 0.5, 1.0}.at(
      static_cast<std::size_t>(static_cast<int>(feature) / 3 + turn) % 3);
  options.lrmoe.mode =
      (static_cast<int>(feature) + turn) % 4 == 3 ? SelectMode::top : SelectMode::sampled;
  switch (feature) {
    case Feature::variance:
      options.lrmoe.variance = 0.3 + 0.2 * turn;
      break;
    case Feature::guard:
      options.lrmoe.ratio = 0.02;
      options.lrmoe.variance_limit = 2.0 + 10.0 * turn;
      break;
    case Feature::time:
      options.lrmoe.time = 2e-4 + 1e-4 * turn;
      options.costs = some_costs();
      break;
    case Feature::in_step:
      options.lrmoe.placing = Placing::in_step;
      options.costs = some_costs();
      break;
    case Feature::near:
      options.costs = some_costs();
      break;
    case Feature::budget:
      options.memory.layers = 2;
      options.memory.model.hidden = 64;
      options.memory.model.width = ranks > 64 ? 32 : 256;
      break;
    default:
      break;
  }
  return options;
}

Counts tokens_demand(const Cluster& cluster, Numbers& numbers) {
  Counts demand(cluster.ranks, cluster.experts);
  for (std::size_t i = 0; i < demand.values.size(); ++i) {
    const auto e = static_cast<int>(i) % cluster.experts;
    demand.values[i] = numbers.up_to(800 / (1 + (e * 13) % 29));
  }
  return demand;
}

/// One setting that changes how a layer is planned, on small and on large clusters, with
/// every activation mode and ratio in turn.
void feature_case(Feature feature, int ranks, int experts, int turn) {
  Numbers numbers(hash(
      {hash(kFeatures.at(static_cast<std::size_t>(feature))), static_cast<std::uint64_t>(ranks)}));
  Cluster cluster{ranks, experts, (experts + ranks - 1) / ranks + 2, 4, 0};
  const bool nodes = feature == Feature::near || feature == Feature::in_step;
  cluster.ranks_per_node = nodes ? std::max(ranks / 4, 4) : 0;
  const Counts before = tokens_demand(cluster, numbers);
  RouteInput input{cluster, tokens_demand(cluster, numbers), {}};
  Counts listed = input.demand;
  for (std::int32_t& pairs : listed.values) {
    pairs = numbers.up_to(pairs);
  }
  ScoreCurves curves(experts);
  ScoreHistogram scores(experts);
  for (int step = 0; step < 3; ++step) {
    scores.clear();
    for (int e = 0; e < experts; ++e) {
      for (int i = 0; i < 20; ++i) {
        const float score = static_cast<float>(numbers.up_to(1000)) * 0.001F;
        scores.add(e, score * score * static_cast<float>(1 + e % 7), 1 + numbers.up_to(9));
      }
    }
    curves.update(scores);
  }
  input.curves = feature == Feature::flat ? nullptr : &curves;
  input.listed = feature == Feature::listed ? &listed : nullptr;
  input.draw = static_cast<std::int64_t>(numbers.next() >> (64 - kQuotaBits));
  StrategyOptions options = options_for(feature, ranks, turn);
  std::string words;
  Plan plan;
  const auto make = [&] {
    const auto strategy = make_strategy(options);
    Placement old = strategy->initial(cluster);
    if (feature == Feature::in_step) {
      old = strategy->place(cluster, before, old, input.curves);
    }
    input.placement = strategy->place(cluster, input.demand, old, input.curves);
    plan = strategy->route(input);
    RouteScratch scratch;
    return digest_of(strategy->route_rank(input, ranks / 3, scratch), options.lrmoe.mode, numbers);
  };
  std::uint64_t part = make();
  if (feature == Feature::budget) {
    options.memory.bytes = fullest_rank(plan, options.memory).bytes * (80 - 10 * turn) / 100;
    try {
      part = make();
    } catch (const InputError& error) {
      words = std::string(", ") + error.what();
    }
  }
  std::printf("%s: %d ranks, %d experts, %zu routes, %zu cells, %016llx, %016llx%s\n",
              kFeatures.at(static_cast<std::size_t>(feature)), ranks, experts, plan.forward.size(),
              plan.cells.size(), static_cast<unsigned long long>(digest_of(plan)),
              static_cast<unsigned long long>(part), words.c_str());
}

}  // namespace
}  // namespace lrmoe::plan

int main() {
  using namespace lrmoe::plan;
  for (const std::string& name : strategy_names()) {
    const int cases = name.find("lrmoe") != std::string::npos ? 32 : 12;
    for (int number = 0; number < cases; ++number) {
      plan_case(name, number);
    }
  }
  int turn = 0;
  for (const int ranks : {8, 32, 64}) {
    for (std::size_t feature = 0; feature < kFeatures.size(); ++feature) {
      feature_case(static_cast<Feature>(feature), ranks, 40, turn);
    }
    ++turn;
  }
  ++turn;
  // Many ranks take long without optimisation: what plans them differently, no more.
  for (const Feature feature : {Feature::plain, Feature::variance, Feature::near}) {
    feature_case(feature, 256, 32, turn);
  }
  return 0;
}
