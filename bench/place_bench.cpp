// Placement: what planning one takes, and how even every strategy is on the routing
// traces that LRMOE_TRACES names (paths, separated by colons).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "lrmoe/plan/robust.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/trace/demand.h"
#include "lrmoe/trace/trace.h"

namespace {

using namespace lrmoe;

/// Uneven weights without a library's random numbers: the same on every machine.
std::vector<std::int64_t> uneven(int experts, std::uint64_t seed) {
  std::vector<std::int64_t> weights;
  std::uint64_t state = seed;
  for (int e = 0; e < experts; ++e) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    weights.push_back(static_cast<std::int64_t>(1000000 / (1 + (state >> 33U) % 40)));
  }
  return weights;
}

void place(benchmark::State& state) {
  const plan::Cluster cluster{static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
                              static_cast<int>(state.range(2)), 8, 0};
  const auto forward = uneven(cluster.experts, 1);
  auto backward = uneven(cluster.experts, 2);
  for (std::size_t e = 0; e < backward.size(); ++e) {
    backward[e] = (3 * forward[e] + backward[e]) / 16;
  }
  for (auto step : state) {
    (void)step;
    benchmark::DoNotOptimize(plan::place_robust(cluster, forward, backward));
  }
}
BENCHMARK(place)
    ->Name("place")
    ->ArgNames({"ranks", "experts", "slots"})
    ->Args({8, 64, 9})
    ->Args({8, 128, 18})
    ->Args({16, 64, 6})
    ->Args({32, 64, 3})
    ->Args({64, 256, 5})
    ->Args({64, 256, 6})
    ->Args({256, 256, 3})
    ->Args({1024, 256, 2})
    ->Unit(benchmark::kMicrosecond);

plan::Counts demand_of(const trace::Routing& routing, const plan::Cluster& c) {
  plan::Counts demand(c.ranks, c.experts);
  demand.values = trace::demand(routing, c.experts, c.ranks);
  return demand;
}

/// Mean over the layers of largest over mean rank load: `same` planned on the step
/// itself, `next` on its first half and split on the second.
void balance(benchmark::State& state, const std::string& path, const std::string& name, int ranks,
             int extra) {
  const trace::Trace trace = trace::Trace::open(path);
  const int experts = trace.info().experts;
  const bool fixed = name == "fixed";
  const plan::Cluster cluster{ranks, experts, (experts + ranks - 1) / ranks + (fixed ? 0 : extra),
                              trace.info().top_k, 0};
  plan::StrategyOptions options;
  options.name = name;
  const auto strategy = plan::make_strategy(options);
  double same[2] = {}, next[2] = {};
  for (auto step : state) {
    (void)step;
    std::fill(same, same + 2, 0.0);
    std::fill(next, next + 2, 0.0);
    for (int l = 0; l < trace.info().layers; ++l) {
      const trace::Routing all = trace.read(0, l);
      const auto reach = [&](double* into, const plan::Counts& seen, const plan::Counts& routed) {
        const plan::Placement placement =
            strategy->place(cluster, seen, strategy->initial(cluster));
        const plan::Plan plan = strategy->route({cluster, routed, placement});
        into[0] += plan::imbalance(plan::rank_loads(plan.forward, ranks)) / trace.info().layers;
        into[1] += plan::imbalance(plan::rank_loads(plan.backward, ranks)) / trace.info().layers;
      };
      const plan::Counts demand = demand_of(all, cluster);
      reach(same, demand, demand);
      reach(next, demand_of(trace::slice(all, 0, all.tokens / 2), cluster),
            demand_of(trace::slice(all, all.tokens / 2, all.tokens), cluster));
    }
  }
  state.counters["same_forward"] = same[0];
  state.counters["same_backward"] = same[1];
  state.counters["next_forward"] = next[0];
  state.counters["next_backward"] = next[1];
}

int register_balance() {
  const char* paths = std::getenv("LRMOE_TRACES");
  std::istringstream list(paths == nullptr ? "" : paths);
  bool any = false;
  for (std::string path; std::getline(list, path, ':');) {
    for (const char* name : {"fixed", "symi", "eplb", "lrmoe"}) {
      for (const int ranks : {8, 16, 32}) {
        for (const int extra : {1, 2}) {
          const std::string title = "balance/" + std::filesystem::path(path).stem().string() + "/" +
                                    name + "/ranks:" + std::to_string(ranks) +
                                    "/more_slots:" + std::to_string(extra);
          benchmark::RegisterBenchmark(
              title.c_str(),
              [path, name = std::string(name), ranks, extra](benchmark::State& state) {
                balance(state, path, name, ranks, extra);
              })
              ->Iterations(1)
              ->Unit(benchmark::kMillisecond);
          any = true;
        }
      }
    }
  }
  if (!any) {
    benchmark::RegisterBenchmark("balance", [](benchmark::State& state) {
      state.SkipWithError("set LRMOE_TRACES to the paths of traces, separated by colons");
    });
  }
  return 0;
}
const int kRegistered = register_balance();

}  // namespace
