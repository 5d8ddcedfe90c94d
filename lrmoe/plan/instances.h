// Where the instances of the experts stand, as flat arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// Instances are numbered by (expert, rank); a second slot of the same expert on
/// the same rank is none. Reused from plan to plan without allocation.
struct InstanceIndex {
  int experts = 0;
  int ranks = 0;
  std::vector<std::int32_t> begin;       // [E + 1] the instances of expert 0, of expert 1, ...
  std::vector<std::int32_t> rank;        // [I] ascending within an expert
  std::vector<std::int32_t> expert;      // [I]
  std::vector<std::int32_t> rank_begin;  // [R + 1] into of_rank
  std::vector<std::int32_t> of_rank;     // [I] the instances on rank 0, on rank 1, ... by expert

  void build(const Placement& placement, int expert_count);
  void build(const Instances& instances, int rank_count);

  int size() const { return static_cast<int>(rank.size()); }
  int count(int e) const {
    return begin[static_cast<std::size_t>(e) + 1] - begin[static_cast<std::size_t>(e)];
  }
  std::span<const std::int32_t> on_rank(int r) const {
    const auto i = static_cast<std::size_t>(r);
    return std::span(of_rank).subspan(static_cast<std::size_t>(rank_begin[i]),
                                      static_cast<std::size_t>(rank_begin[i + 1] - rank_begin[i]));
  }

 private:
  void list_by_rank();

  std::vector<std::int32_t> next_;  // [E] working space of build
};

}  // namespace lrmoe::plan
