#include "lrmoe/plan/tables.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {

std::vector<std::int64_t> pairs_per_expert(const Counts& counts) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(counts.cols), 0);
  for (int r = 0; r < counts.rows; ++r) {
    const auto row = counts.row(r);
    for (std::size_t e = 0; e < sums.size(); ++e) {
      sums[e] += row[e];
    }
  }
  return sums;
}

std::int64_t total_pairs(const Counts& counts) {
  return std::accumulate(counts.values.begin(), counts.values.end(), std::int64_t{0});
}

std::vector<std::vector<std::int32_t>> slots_of_experts(const Placement& placement, int experts) {
  std::vector<std::vector<std::int32_t>> ranks(static_cast<std::size_t>(experts));
  for (int r = 0; r < placement.rows; ++r) {
    for (const std::int32_t e : placement.row(r)) {
      if (e >= 0) {
        ranks.at(static_cast<std::size_t>(e)).push_back(r);
      }
    }
  }
  return ranks;
}

Counts slots_per_rank(const Placement& placement, int experts) {
  Counts slots(experts, placement.rows);
  for (int r = 0; r < placement.rows; ++r) {
    for (const std::int32_t e : placement.row(r)) {
      if (e >= 0) {
        ++slots.at(e, r);
      }
    }
  }
  return slots;
}

std::vector<std::int64_t> rank_loads(const Split& split, int ranks) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  for (const Route& route : split) {
    loads[static_cast<std::size_t>(route.rank)] += route.pairs;
  }
  return loads;
}

Loads expert_loads(const Split& split, int experts, int ranks) {
  Loads loads(experts, ranks);
  for (const Route& route : split) {
    loads.at(route.expert, route.rank) += route.pairs;
  }
  return loads;
}

Counts source_counts(const Split& split, int ranks, int experts) {
  Counts counts(ranks, experts);
  for (const Route& route : split) {
    counts.at(route.source, route.expert) += route.pairs;
  }
  return counts;
}

double imbalance(const std::vector<std::int64_t>& loads) {
  const std::int64_t sum = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  if (sum == 0) {
    return 1.0;
  }
  const std::int64_t largest = *std::max_element(loads.begin(), loads.end());
  return static_cast<double>(largest) * static_cast<double>(loads.size()) /
         static_cast<double>(sum);
}

int node_of(const Cluster& cluster, int rank) {
  return cluster.ranks_per_node > 0 ? rank / cluster.ranks_per_node : 0;
}

std::vector<std::int64_t> apportion(std::int64_t amount, const std::vector<std::int64_t>& shares) {
  std::vector<std::int64_t> parts(shares.size(), 0);
  const std::int64_t sum = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  if (sum == 0) {
    return parts;
  }
  std::vector<std::int64_t> remainders(shares.size());
  std::int64_t left = amount;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    parts[i] = mul_div(amount, shares[i], sum);
    remainders[i] = mul_mod(amount, shares[i], sum);
    left -= parts[i];
  }
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  LRMOE_ASSERT(left >= 0 && left <= static_cast<std::int64_t>(order.size()),
               "[apportion] remainders do not add up");
  for (std::int64_t i = 0; i < left; ++i) {
    ++parts[order[static_cast<std::size_t>(i)]];
  }
  return parts;
}

Placement with_slots(const Placement& placement, int slots) {
  Placement out(placement.rows, slots, -1);
  for (int r = 0; r < placement.rows; ++r) {
    std::copy(placement.row(r).begin(), placement.row(r).end(), out.row(r).begin());
  }
  return out;
}

std::vector<std::int32_t> used_slots(const Placement& placement) {
  std::vector<std::int32_t> used;
  for (int r = 0; r < placement.rows; ++r) {
    const auto row = placement.row(r);
    used.push_back(static_cast<std::int32_t>(
        std::count_if(row.begin(), row.end(), [](std::int32_t e) { return e >= 0; })));
  }
  return used;
}

int most_used_slots(const Placement& placement) {
  const auto used = used_slots(placement);
  return *std::max_element(used.begin(), used.end());
}

}  // namespace lrmoe::plan
