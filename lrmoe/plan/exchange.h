// Pass "split", activation mode keep: of the even forward splits one whose backward
// loads are even as well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/instances.h"

namespace lrmoe::plan {

/// Reused from split to split.
class Exchange {
 public:
  /// Where pairs are kept at the instance that computed them, a rank's backward load
  /// is the sum of its instances' `loads` [I] times their experts' `share` [E] (fixed
  /// point). While a rank's is above `capacity` (fixed point), it exchanges pairs with
  /// another that holds the same two experts: pairs of the one with the larger share for
  /// as many of the other. Forward loads stay as they are, and with ranks in nodes of
  /// `node_width` also each expert's pairs in a node. Returns what the ranks still are
  /// above it, in sum.
  std::int64_t run(const InstanceIndex& index, std::span<const std::int64_t> share,
                   std::int64_t capacity, int node_width, std::span<std::int64_t> loads);

 private:
  bool relieve(const InstanceIndex& index, std::span<const std::int64_t> share,
               std::int64_t capacity, int r, std::span<std::int64_t> loads);

  std::vector<std::int64_t> kept_;      // [R]
  std::vector<std::int32_t> instance_;  // [E] on the rank that is relieved, or -1
  int node_width_ = 0;
};

}  // namespace lrmoe::plan
