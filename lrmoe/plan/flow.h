// Maximum flow from experts to the ranks that hold them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lrmoe::plan {

/// For every expert the ranks that hold it, each once.
using Instances = std::vector<std::vector<std::int32_t>>;

/// Source -> expert (capacity: its supply) -> rank (no limit) -> sink (the rank's
/// capacity). Dinic's algorithm on integers; capacities may be raised between
/// runs and the flow is kept.
class InstanceFlow {
 public:
  InstanceFlow(const Instances& instances, int ranks);

  void raise_supply(int expert, std::int64_t by);
  void raise_capacity(int rank, std::int64_t by);
  /// Sends up to `amount` from `expert` to `rank` directly, as far as both allow.
  std::int64_t seed(int expert, int rank, std::int64_t amount);
  /// Augments to a maximum flow and returns its value.
  std::int64_t run();

  /// After run(): what the minimum cut leaves on the source's side. Experts there
  /// have all their ranks there, and these are full.
  struct Cut {
    std::vector<std::int32_t> experts, ranks;
  };
  Cut cut();

  /// Flow of expert e to its i-th instance.
  std::int64_t flow(int expert, std::size_t i) const;

 private:
  struct Edge {
    int to;
    int back;  // index of the reverse edge among those of `to`
    std::int64_t room;
  };
  void connect(int from, int to, std::int64_t room);
  int expert_node(int e) const { return 2 + e; }
  int rank_node(int r) const { return 2 + experts_ + r; }
  void push(Edge& edge, std::int64_t amount);
  bool level();  // distances from the source; false when the sink is out of reach
  std::int64_t augment(int node, std::int64_t limit);

  static constexpr int kSource = 0;
  static constexpr int kSink = 1;
  int experts_;
  int ranks_;
  std::int64_t value_ = 0;
  std::vector<std::vector<Edge>> edges_;  // expert e: [0] from the source, then instances
  std::vector<int> depth_;
  std::vector<std::size_t> next_;
};

}  // namespace lrmoe::plan
