#include "lrmoe/plan/near.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lrmoe/plan/excess.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

int nodes_of(const Cluster& cluster) {
  return node_of(cluster, cluster.ranks - 1) + 1;
}

/// [nodes, E] demand and [nodes, E] instances.
struct NodeTables {
  Loads demand, instances;

  NodeTables(const Cluster& cluster, const Counts& sources, const Placement& placement)
      : demand(nodes_of(cluster), cluster.experts), instances(demand.rows, cluster.experts) {
    for (int r = 0; r < cluster.ranks; ++r) {
      const int node = node_of(cluster, r);
      for (int e = 0; e < cluster.experts; ++e) {
        demand.at(node, e) += sources.at(r, e);
      }
      for (const std::int32_t e : placement.row(r)) {
        if (e >= 0) {
          ++instances.at(node, e);
        }
      }
    }
  }

  std::int64_t far() const {
    std::int64_t pairs = 0;
    for (std::size_t i = 0; i < demand.values.size(); ++i) {
      pairs += instances.values[i] == 0 ? demand.values[i] : 0;
    }
    return pairs;
  }
  /// What far() changes by when an instance of `e` goes from one node to another.
  std::int64_t change(int e, int from, int to) const {
    return (instances.at(from, e) == 1 ? demand.at(from, e) : 0) -
           (instances.at(to, e) == 0 ? demand.at(to, e) : 0);
  }
  void move(int e, int from, int to) {
    --instances.at(from, e);
    ++instances.at(to, e);
  }
};

std::int64_t sum(std::span<const std::int64_t> weights) {
  return std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
}

/// Seconds of the fullest rank's GEMMs.
double compute_seconds(const PlanCosts& costs, const PlacementDemand& d,
                       const Placement& placement) {
  ReplicaFlow flow(placement, d.cluster.experts);
  const auto fullest = [&](std::span<const std::int64_t> weights) {
    const std::int64_t mean = (sum(weights) + d.cluster.ranks - 1) / d.cluster.ranks;
    return static_cast<double>(mean + flow.excess(weights, mean));
  };
  const double again = d.activations == Activations::recompute ? costs.recompute_pair : 0.0;
  return fullest(d.forward) * costs.forward_pair +
         fullest(d.backward) / static_cast<double>(kOne) * (costs.backward_pair + again);
}

/// Seconds that a far pair adds to every rank.
double far_seconds(const PlanCosts& costs, const PlacementDemand& d) {
  const double pairs = static_cast<double>(sum(d.forward));
  const double kept = static_cast<double>(sum(d.backward)) / static_cast<double>(kOne);
  if (pairs <= 0 || costs.inter_row <= costs.intra_row) {
    return 0;
  }
  // Pairs of a token that end on the same rank share a row.
  const double k = d.cluster.top_k;
  const double miss = 1.0 - 1.0 / d.cluster.ranks;
  double all_miss = 1.0;
  for (int i = 0; i < d.cluster.top_k; ++i) {
    all_miss *= miss;
  }
  const double rows_per_pair = (1.0 - all_miss) * d.cluster.ranks / k;
  const double times = d.activations == Activations::recompute ? 3 : 2;
  return rows_per_pair * (2 + times * kept / pairs) * (costs.inter_row - costs.intra_row) /
         d.cluster.ranks;
}

bool holds(const Placement& placement, int rank, std::int32_t e) {
  const auto row = placement.row(rank);
  return std::find(row.begin(), row.end(), e) != row.end();
}

void sort_row(Placement& placement, int rank) {
  auto row = placement.row(rank);
  std::sort(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
    return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);  // empty ones last
  });
}

struct Swap {
  double gain = 0;                 // seconds, as far as it can be told without a split
  int r = 0, a = 0, s = 0, b = 0;  // rank r's expert a with rank s's expert b
};

}  // namespace

std::int64_t far_pairs(const Cluster& cluster, const Counts& demand, const Placement& placement) {
  return NodeTables(cluster, demand, placement).far();
}

double placement_seconds(const PlanCosts& costs, const PlacementDemand& demand,
                         const Placement& placement) {
  return compute_seconds(costs, demand, placement) +
         far_seconds(costs, demand) *
             static_cast<double>(far_pairs(demand.cluster, *demand.sources, placement));
}

Placement bring_near(const PlanCosts& costs, const PlacementDemand& d, Placement placement) {
  const double far = far_seconds(costs, d);
  if (!costs.known() || far <= 0 || nodes_of(d.cluster) < 2) {
    return placement;
  }
  NodeTables nodes(d.cluster, *d.sources, placement);
  const double again = d.activations == Activations::recompute ? costs.recompute_pair : 0.0;
  const auto work = [&](int e) {
    return static_cast<double>(d.forward[at(e)]) * costs.forward_pair +
           static_cast<double>(d.backward[at(e)]) / static_cast<double>(kOne) *
               (costs.backward_pair + again);
  };
  double now = compute_seconds(costs, d, placement) + far * static_cast<double>(nodes.far());
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<Swap> swaps;
    for (int r = 0; r < d.cluster.ranks; ++r) {
      for (int s = r + 1; s < d.cluster.ranks; ++s) {
        const int from = node_of(d.cluster, r);
        const int to = node_of(d.cluster, s);
        if (from == to) {
          continue;
        }
        for (const std::int32_t a : placement.row(r)) {
          for (const std::int32_t b : placement.row(s)) {
            if (a < 0 || b < 0 || a == b) {
              continue;
            }
            const std::int64_t change = nodes.change(a, from, to) + nodes.change(b, to, from);
            if (change < 0) {
              // Hubs make up for some of the difference in work.
              const double off = work(a) > work(b) ? work(a) - work(b) : work(b) - work(a);
              swaps.push_back({far * static_cast<double>(-change) - off / 8, r, a, s, b});
            }
          }
        }
      }
    }
    std::stable_sort(swaps.begin(), swaps.end(),
                     [](const Swap& x, const Swap& y) { return x.gain > y.gain; });
    bool better = false;
    int tries = 64 + 4 * d.cluster.ranks;
    for (const Swap& swap : swaps) {
      if (tries == 0) {
        break;
      }
      const auto row_r = placement.row(swap.r);
      const auto row_s = placement.row(swap.s);
      const auto slot_r = std::find(row_r.begin(), row_r.end(), swap.a);
      const auto slot_s = std::find(row_s.begin(), row_s.end(), swap.b);
      const int from = node_of(d.cluster, swap.r);
      const int to = node_of(d.cluster, swap.s);
      if (slot_r == row_r.end() || slot_s == row_s.end() || holds(placement, swap.s, swap.a) ||
          holds(placement, swap.r, swap.b) ||
          nodes.change(swap.a, from, to) + nodes.change(swap.b, to, from) >= 0) {
        continue;  // an earlier swap has changed it
      }
      --tries;
      std::swap(*slot_r, *slot_s);
      nodes.move(swap.a, from, to);
      nodes.move(swap.b, to, from);
      const double then =
          compute_seconds(costs, d, placement) + far * static_cast<double>(nodes.far());
      if (then < now) {
        now = then;
        better = true;
      } else {
        std::swap(*slot_r, *slot_s);
        nodes.move(swap.a, to, from);
        nodes.move(swap.b, from, to);
      }
    }
    if (!better) {
      break;
    }
  }
  for (int r = 0; r < placement.rows; ++r) {
    sort_row(placement, r);
  }
  return placement;
}

int most_fetched(const Placement& present, const Placement& next) {
  int most = 0;
  for (int r = 0; r < next.rows; ++r) {
    int fetched = 0;
    for (const std::int32_t e : next.row(r)) {
      fetched += e >= 0 && !holds(present, r, e) ? 1 : 0;
    }
    most = std::max(most, fetched);
  }
  return most;
}

Placement place_in_step(const PlanCosts& costs, const PlacementDemand& d, const Placement& present,
                        const Placement& next) {
  // Balance does not mind which rank holds which row: the ones with most in common first.
  struct Pair {
    int common, row, rank;
  };
  std::vector<Pair> pairs;
  for (int row = 0; row < next.rows; ++row) {
    for (int rank = 0; rank < next.rows; ++rank) {
      if (node_of(d.cluster, row) == node_of(d.cluster, rank)) {
        int common = 0;
        for (const std::int32_t e : next.row(row)) {
          common += e >= 0 && holds(present, rank, e) ? 1 : 0;
        }
        pairs.push_back({common, row, rank});
      }
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.common > b.common; });
  std::vector<bool> given(at(next.rows), false), taken(at(next.rows), false);
  Placement aligned = next;
  for (const Pair& p : pairs) {
    if (!given[at(p.row)] && !taken[at(p.rank)]) {
      given[at(p.row)] = taken[at(p.rank)] = true;
      std::copy(next.row(p.row).begin(), next.row(p.row).end(), aligned.row(p.rank).begin());
    }
  }
  // Without costs, work counts in FLOPs and fetching is free.
  PlanCosts priced = costs;
  if (!costs.known()) {
    priced.forward_pair = 1;
    priced.backward_pair = 2;
    priced.recompute_pair = 2.0 / 3;
  }
  const double stay = placement_seconds(priced, d, present);
  const double go = placement_seconds(priced, d, aligned) +
                    most_fetched(present, aligned) * priced.fetch_instance;
  return stay - go <= stay / 200 ? present : aligned;
}

}  // namespace lrmoe::plan
