// How far a placement is from an even split, for weights that may still change:
// what the search for a placement asks many times.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

class ReplicaFlow {
 public:
  /// The placement's experts that stand more than once become nodes of a flow;
  /// the others only load their rank.
  ReplicaFlow(const Placement& placement, int experts);

  /// By how much the fullest rank is above `mean` (the weights' sum over R) in the
  /// best split, exactly up to rounding. Weights [E] >= 0.
  std::int64_t excess(std::span<const std::int64_t> weights, std::int64_t mean);

  /// The split that excess(weights, ..) found, in order of expert and rank.
  void loads(std::span<const std::int64_t> weights, std::vector<std::int64_t>& out) const;

 private:
  void level(int node);
  std::int64_t send_rest();
  std::int64_t augment();
  std::int64_t carry(int last);

  int ranks_;
  std::vector<std::int32_t> single_;               // [E] the only rank, or -1
  std::vector<std::int32_t> expert_;               // of each node
  std::vector<int> first_, rank_;                  // edges of node i: [first_[i], first_[i + 1])
  std::vector<int> first_at_, edge_at_, node_of_;  // edges at a rank, and whose they are
  std::vector<std::int64_t> flow_, room_, load_, left_;
  std::vector<int> from_node_, from_rank_, queue_;  // the last search
  std::vector<std::pair<std::int64_t, int>> order_;
};

}  // namespace lrmoe::plan
