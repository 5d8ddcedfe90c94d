// Planner latency, one core, one layer: what a training step waits for (the
// critical path of one rank), its parts, and the whole plan of all ranks.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>

#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {
namespace {

constexpr int kTokens = 8192;
constexpr int kTopK = 8;
constexpr int kSteps = 8;  // demands that the runs go through in turn

/// Zipf popularity (exponent 0.8) that drifts a little every step; the placement is
/// planned on the step before the first.
struct Case {
  Cluster cluster;
  ScoreCurves curves;
  std::vector<RouteInput> inputs;
  std::unique_ptr<const Strategy> strategy;

  Case(int ranks, int experts, int slots, Activations activations, int ranks_per_node)
      : cluster{ranks, experts, slots, kTopK, ranks_per_node}, curves(experts) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    ScoreHistogram scores(experts);
    std::vector<double> popularity;
    for (int e = 0; e < experts; ++e) {
      popularity.push_back(1.0 / std::pow(1.0 + e, 0.8));
      const double scale = std::exp(0.5 * normal(random));
      for (int i = 0; i < 500; ++i) {
        scores.add(e, static_cast<float>(scale * std::exp(normal(random))));
      }
    }
    curves.update(scores);
    std::shuffle(popularity.begin(), popularity.end(), random);
    StrategyOptions options;
    options.name = "lrmoe";
    options.lrmoe.activations = activations;
    strategy = make_strategy(options);
    Placement placement = strategy->initial(cluster);
    placement = strategy->place(cluster, demand_of(popularity, random), placement, &curves);
    for (int step = 0; step < kSteps; ++step) {
      for (double& p : popularity) {
        p *= std::exp(0.05 * normal(random));
      }
      RouteInput input{cluster, demand_of(popularity, random), placement};
      input.curves = &curves;
      input.draw = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kOne));
      inputs.push_back(std::move(input));
    }
  }

  Counts demand_of(const std::vector<double>& popularity, std::mt19937_64& random) const {
    Counts demand(cluster.ranks, cluster.experts);
    std::normal_distribution<double> normal;
    for (int r = 0; r < cluster.ranks; ++r) {
      double all = 0.0;
      std::vector<double> own;
      for (const double p : popularity) {
        own.push_back(p * std::exp(0.3 * normal(random)));  // sources differ
        all += own.back();
      }
      int left = kTokens * kTopK;
      for (int e = 0; e < cluster.experts; ++e) {
        const auto pairs =
            static_cast<int>(kTokens * kTopK * own[static_cast<std::size_t>(e)] / all);
        demand.at(r, e) = std::min({pairs, kTokens, left});
        left -= demand.at(r, e);
      }
      for (int e = 0; left > 0; e = (e + 1) % cluster.experts) {
        const int more = std::min(left, kTokens - demand.at(r, e));
        demand.at(r, e) += more;
        left -= more;
      }
    }
    return demand;
  }
};

std::string shape(int ranks, int experts, int slots) {
  return "/ranks:" + std::to_string(ranks) + "/experts:" + std::to_string(experts) +
         "/slots:" + std::to_string(slots);
}

template <class F>
void each_step(benchmark::State& state, const Case& test, F run) {
  std::size_t step = 0;
  for (auto _ : state) {
    run(test.inputs[step++ % test.inputs.size()]);
  }
}

void critical_path(benchmark::State& state, const std::shared_ptr<const Case>& test) {
  RouteScratch scratch;
  each_step(state, *test, [&](const RouteInput& input) {
    benchmark::DoNotOptimize(test->strategy->route_rank(input, input.cluster.ranks / 2, scratch));
  });
}

void forward_split(benchmark::State& state, const std::shared_ptr<const Case>& test) {
  RouteScratch scratch;
  each_step(state, *test, [&](const RouteInput& input) {
    outline_forward(input, input.cluster.ranks / 2, scratch);
    benchmark::ClobberMemory();
  });
}

/// With the forward split, which it starts from.
void quota_and_splits(benchmark::State& state, const std::shared_ptr<const Case>& test) {
  RouteScratch scratch;
  const int rank = test->cluster.ranks / 2;
  each_step(state, *test, [&](const RouteInput& input) {
    outline_forward(input, rank, scratch);
    outline_backward(input, *test->strategy->selection(), rank, {}, scratch);
    benchmark::ClobberMemory();
  });
}

void whole_plan(benchmark::State& state, const std::shared_ptr<const Case>& test) {
  each_step(state, *test, [&](const RouteInput& input) {
    benchmark::DoNotOptimize(test->strategy->route(input));
  });
}

using Run = void (*)(benchmark::State&, const std::shared_ptr<const Case>&);

/// A case is made when its benchmark starts, not for those that are filtered out.
void add(const std::string& name, Run run, int ranks, int experts, int slots,
         Activations activations, int ranks_per_node) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto test =
        std::make_shared<const Case>(ranks, experts, slots, activations, ranks_per_node);
    run(state, test);
  })->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  for (const int ranks : {8, 16, 64, 256, 1024}) {
    for (const int experts : {32, 64, 128, 256}) {
      const int slots = (experts + ranks - 1) / ranks + 2;
      const std::string at = shape(ranks, experts, slots);
      for (const auto& [mode, activations] :
           {std::pair{"keep", Activations::keep}, std::pair{"recompute", Activations::recompute}}) {
        const std::string tail = at + "/activations:" + mode;
        add("plan" + tail, critical_path, ranks, experts, slots, activations, 0);
        add("plan-outline" + tail, quota_and_splits, ranks, experts, slots, activations, 0);
        add("plan-whole" + tail, whole_plan, ranks, experts, slots, activations, 0);
        if (ranks > 8) {
          add("plan-nodes" + tail, critical_path, ranks, experts, slots, activations, 8);
        }
      }
      add("plan-forward" + at, forward_split, ranks, experts, slots, Activations::keep, 0);
    }
  }
  return true;
}();

}  // namespace
}  // namespace lrmoe::plan
