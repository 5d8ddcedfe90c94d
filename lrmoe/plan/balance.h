// The exact min-max split in microseconds: a maximum flow over the experts that
// have replicas only (an expert with one instance is fixed load), seeded greedily.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/instances.h"

namespace lrmoe::plan {

/// Reused from split to split; allocates only while it grows.
class Balancer {
 public:
  /// Loads of the instances, so that the fullest rank has as few as possible:
  /// starts at the mean (or the largest fixed load), and while pairs are left over
  /// the minimum cut names experts whose ranks are too few, and the threshold
  /// rises to what these need. Returns the load of the fullest rank.
  ///   pairs: [E]; local: [I] pairs that are on an instance's rank already and go
  ///   there first, or empty; loads: [I], the result.
  std::int64_t split(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                     std::span<const std::int64_t> local, std::span<std::int64_t> loads);

  /// As far as no rank gets more than `threshold`: what is left over. (An expert with
  /// one instance stays there whole in `loads`, also above the threshold.)
  std::int64_t fill(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                    std::int64_t threshold, std::span<std::int64_t> loads);

  /// After a fill() that left something over: the minimum cut. All ranks of the
  /// experts in it (flags [E]) are in it (flags [R]), and these are full.
  void cut(std::vector<char>& experts, std::vector<char>& ranks);

 private:
  static constexpr std::int32_t kFar = 1 << 30;

  void know(const InstanceIndex& index);
  void start(const InstanceIndex& index, std::span<const std::int64_t> pairs,
             std::span<std::int64_t> loads);
  std::int64_t give(std::int32_t instance, std::int64_t amount);
  void seed_local(std::span<const std::int64_t> local);
  void level_out();
  void plant();
  void settle();
  void run();
  bool reach();  // levels from what is left over; false: no rank with room in reach
  std::int64_t push_expert(std::int32_t e, std::int64_t limit);
  std::int64_t push_rank(std::int32_t r, std::int64_t limit);
  void raise(std::span<const std::int64_t> pairs);

  const InstanceIndex* index_ = nullptr;
  // What follows from the index alone stays until another comes: a plan splits three times.
  struct Single {
    std::int32_t expert, instance, rank;
  };
  std::vector<std::int32_t> known_begin_, known_rank_;  // the index's, when it was last looked at
  std::vector<std::int32_t> none_, several_;            // experts without, with many instances
  std::vector<Single> singles_;                         // and those with one
  std::span<std::int64_t> flow_;                        // [I]
  std::int64_t threshold_ = 0;
  std::int64_t left_over_ = 0;
  std::vector<std::int64_t> left_;         // [E] pairs without an instance so far
  std::vector<std::int64_t> load_;         // [R]
  std::vector<std::int64_t> fixed_;        // [R] of experts with one instance
  std::vector<std::int32_t> multi_;        // experts with more than one instance and pairs
  std::vector<std::int32_t> multi_begin_;  // [R + 1] into multi_at_
  std::vector<std::int32_t> multi_at_;     // instances of `multi_` on rank 0, on rank 1, ...
  std::vector<std::int32_t> multi_of_;     // and their experts
  std::vector<std::int32_t> multi_now_;    // `multi_` of this split, before it is compared
  std::vector<std::int32_t> expert_level_, rank_level_, expert_next_, rank_next_, queue_;
  std::int32_t room_level_ = 0;  // of the ranks with room that were reached
  std::vector<std::int64_t> heights_;
  // A spanning forest of experts and ranks (node E + r), breadth first; it follows from
  // the index and `multi_`.
  struct Node {
    std::int32_t id;
    std::int32_t edge;  // instance between it and its parent, -1: a root
    std::int32_t first_child, end_child;
    std::int64_t net;  // what its subtree has too much (or, below zero, room for)
    std::int64_t up;   // of that what may pass to the parent (or come from it)
  };
  std::vector<Node> forest_;
  std::vector<char> planted_;
};

}  // namespace lrmoe::plan
