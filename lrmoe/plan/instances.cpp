#include "lrmoe/plan/instances.h"

#include <numeric>

namespace lrmoe::plan {

void InstanceIndex::build(const Placement& placement, int expert_count) {
  experts = expert_count;
  ranks = placement.rows;
  begin.assign(static_cast<std::size_t>(experts) + 1, 0);
  next_.assign(static_cast<std::size_t>(experts), -1);  // here: the last rank that has it
  for (int r = 0; r < ranks; ++r) {
    for (const std::int32_t e : placement.row(r)) {
      if (e >= 0 && next_[static_cast<std::size_t>(e)] != r) {
        next_[static_cast<std::size_t>(e)] = r;
        ++begin[static_cast<std::size_t>(e) + 1];
      }
    }
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  const auto count = static_cast<std::size_t>(begin.back());
  rank.resize(count);
  expert.resize(count);
  of_rank.resize(count);
  rank_begin.resize(static_cast<std::size_t>(ranks) + 1);
  next_.assign(begin.begin(), begin.end() - 1);
  std::size_t listed = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t first = listed;
    rank_begin[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(first);
    for (const std::int32_t e : placement.row(r)) {
      if (e < 0) {
        continue;
      }
      const std::int32_t i = next_[static_cast<std::size_t>(e)];
      const auto place = static_cast<std::size_t>(i);
      if (i > begin[static_cast<std::size_t>(e)] && rank[place - 1] == r) {
        continue;  // a second slot
      }
      rank[place] = r;
      expert[place] = e;
      next_[static_cast<std::size_t>(e)] = i + 1;
      // Rows are mostly sorted, so an instance rarely has to pass another.
      std::size_t at = listed++;
      for (; at > first && of_rank[at - 1] > i; --at) {
        of_rank[at] = of_rank[at - 1];
      }
      of_rank[at] = i;
    }
  }
  rank_begin[static_cast<std::size_t>(ranks)] = static_cast<std::int32_t>(listed);
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
