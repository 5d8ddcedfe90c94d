// Of the splits whose fullest rank has no more than a threshold, one whose pairs
// cross nodes least.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/instances.h"

namespace lrmoe::plan {

/// A minimum-cost flow: expert -> its instances in one node (free as far as that node
/// has pairs of the expert, then 1 a pair) -> rank -> at most the threshold. Begins with
/// what stays in its node, which costs nothing, and augments along cheapest ways, many
/// of the same length at a time. Exact. Reused from split to split.
class Localizer {
 public:
  ///   pairs: [E]; local: [I] pairs that are on an instance's rank already (taken first:
  ///   a preference, not part of the cost); node_pairs: [nodes * E]; loads: [I], the
  ///   result. `threshold` is one at which all pairs can be placed.
  void split(const InstanceIndex& index, std::span<const std::int64_t> pairs,
             std::span<const std::int64_t> local, std::span<const std::int64_t> node_pairs,
             int ranks_per_node, std::int64_t threshold, std::span<std::int64_t> loads);

 private:
  /// An expert's instances in one node.
  struct Group {
    std::int32_t expert, begin, end;
    std::int64_t here;  // pairs of the expert in that node
    std::int64_t flow;
  };
  static constexpr std::int32_t kFar = 1 << 30;

  void group(std::span<const std::int64_t> node_pairs, int ranks_per_node);
  void give(std::int32_t instance, std::int64_t amount);
  bool measure();  // distances from what is left; false: nothing is left, or no way
  void relax(std::int32_t node, std::int32_t distance);
  std::int64_t push(std::int32_t node, std::int64_t limit);
  std::int64_t push_expert(std::int32_t e, std::int64_t limit);
  std::int64_t push_group(std::int32_t g, std::int64_t limit);
  std::int64_t push_rank(std::int32_t r, std::int64_t limit);

  // Nodes of the network: experts, then groups, then ranks.
  std::int32_t group_node(std::int32_t g) const { return index_->experts + g; }
  std::int32_t rank_node(std::int32_t r) const { return first_rank_ + r; }
  std::int32_t distance(std::int32_t node) const {
    return distance_[static_cast<std::size_t>(node)];
  }

  const InstanceIndex* index_ = nullptr;
  std::span<std::int64_t> flow_;
  std::int64_t threshold_ = 0;
  std::int32_t first_rank_ = 0;
  std::int32_t sink_ = 0;  // distance
  std::vector<std::int64_t> left_, load_;
  std::vector<Group> groups_;
  std::vector<std::int32_t> group_begin_;  // [E + 1]
  std::vector<std::int32_t> group_of_;     // [I], -1: the expert has one instance
  std::vector<std::int32_t> distance_, queue_;
  std::vector<char> queued_, done_;
};

}  // namespace lrmoe::plan
