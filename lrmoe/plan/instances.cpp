#include "lrmoe/plan/instances.h"

#include <numeric>

namespace lrmoe::plan {

void InstanceIndex::build(const Placement& placement, int expert_count) {
  experts = expert_count;
  ranks = placement.rows;
  begin.assign(static_cast<std::size_t>(experts) + 1, 0);
  const auto repeated = [](std::span<const std::int32_t> row, std::size_t s) {
    for (std::size_t i = 0; i < s; ++i) {
      if (row[i] == row[s]) {
        return true;
      }
    }
    return false;
  };
  for (int r = 0; r < ranks; ++r) {
    const auto row = placement.row(r);
    for (std::size_t s = 0; s < row.size(); ++s) {
      if (row[s] >= 0 && !repeated(row, s)) {
        ++begin[static_cast<std::size_t>(row[s]) + 1];
      }
    }
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  rank.resize(static_cast<std::size_t>(begin.back()));
  expert.resize(rank.size());
  // Writing an expert's next instance moves its beginning to the next expert's; put right below.
  for (int r = 0; r < ranks; ++r) {
    const auto row = placement.row(r);
    for (std::size_t s = 0; s < row.size(); ++s) {
      if (row[s] >= 0 && !repeated(row, s)) {
        const auto i = static_cast<std::size_t>(begin[static_cast<std::size_t>(row[s])]++);
        rank[i] = r;
        expert[i] = row[s];
      }
    }
  }
  for (std::size_t e = begin.size() - 1; e > 0; --e) {
    begin[e] = begin[e - 1];
  }
  begin[0] = 0;
  list_by_rank();
}

void InstanceIndex::build(const Instances& instances, int rank_count) {
  experts = static_cast<int>(instances.size());
  ranks = rank_count;
  begin.assign(1, 0);
  rank.clear();
  expert.clear();
  for (std::size_t e = 0; e < instances.size(); ++e) {
    rank.insert(rank.end(), instances[e].begin(), instances[e].end());
    expert.resize(rank.size(), static_cast<std::int32_t>(e));
    begin.push_back(static_cast<std::int32_t>(rank.size()));
  }
  list_by_rank();
}

void InstanceIndex::list_by_rank() {
  rank_begin.assign(static_cast<std::size_t>(ranks) + 1, 0);
  for (const std::int32_t r : rank) {
    ++rank_begin[static_cast<std::size_t>(r) + 1];
  }
  std::partial_sum(rank_begin.begin(), rank_begin.end(), rank_begin.begin());
  of_rank.resize(rank.size());
  for (std::size_t i = 0; i < rank.size(); ++i) {
    const auto place = rank_begin[static_cast<std::size_t>(rank[i])]++;
    of_rank[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(i);
  }
  for (std::size_t r = rank_begin.size() - 1; r > 0; --r) {
    rank_begin[r] = rank_begin[r - 1];
  }
  rank_begin[0] = 0;
}

}  // namespace lrmoe::plan
