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
  /// `node_width` also each expert's pairs in a node. Ends when a round over the ranks
  /// gains little. Returns what the ranks still are above the capacity, in sum.
  std::int64_t run(const InstanceIndex& index, std::span<const std::int64_t> share,
                   std::int64_t capacity, int node_width, std::span<std::int64_t> loads);

 private:
  /// An instance of an expert that stands on several ranks.
  struct Held {
    std::int32_t instance;
    std::int32_t expert;
    std::int64_t share;
  };
  void list(const InstanceIndex& index, std::span<const std::int64_t> share);
  std::span<const Held> held(std::int32_t r) const;
  void relieve(const InstanceIndex& index, std::int64_t capacity, std::int32_t r, int round,
               std::span<std::int64_t> loads);
  std::int64_t above(std::int64_t capacity) const;

  std::vector<Held> held_;                // rank after rank
  std::vector<std::int32_t> held_begin_;  // [R + 1] into held_
  std::vector<std::int64_t> kept_;        // [R]
  std::vector<std::int32_t> here_;        // [E] the instance on the rank that is relieved, or -1
  std::vector<std::int32_t> node_;        // [R]
};

}  // namespace lrmoe::plan
