// Plans a list of generated cases and prints one line a case: what was planned, and a
// digest of the plan's bytes. The same lines must come from every compiler, optimisation
// level and instruction set (compare.sh).
#include <bit>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "lrmoe/base/hash.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/outline.h"
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
  for (const std::string& note : plan.notes) {
    digest.add(hash(note));
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

}  // namespace
}  // namespace lrmoe::plan

int main() {
  for (const std::string& name : lrmoe::plan::strategy_names()) {
    const int cases = name.find("lrmoe") != std::string::npos ? 40 : 12;
    for (int number = 0; number < cases; ++number) {
      lrmoe::plan::plan_case(name, number);
    }
  }
  return 0;
}
