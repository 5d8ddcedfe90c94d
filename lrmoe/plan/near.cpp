#include "lrmoe/plan/near.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lrmoe/plan/balance.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/instances.h"
#include "lrmoe/plan/lines.h"
#include "lrmoe/plan/swaps.h"

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// [nodes, E] demand and [nodes, E] instances.
struct NodeTables {
  Loads demand, instances;

  NodeTables(const Cluster& cluster, const Counts& sources, const Placement& placement)
      : demand(node_count(cluster), cluster.experts), instances(demand.rows, cluster.experts) {
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

/// Seconds of a pair's GEMMs in the backward pass.
double backward_pair(const PlanCosts& costs, Activations activations) {
  return costs.backward_pair + (activations == Activations::recompute ? costs.recompute_pair : 0.0);
}

/// Seconds of the fullest rank's GEMMs. Reused from placement to placement; the loads
/// of one are where the next one's split begins, which is exact from any start.
class ComputeSeconds {
 public:
  double operator()(const PlanCosts& costs, const PlacementDemand& d, const Placement& placement) {
    index_.build(placement, d.cluster.experts);
    loads_.resize(at(index_.size()));
    start_.resize(loads_.size());
    const double forward = fullest(d.forward, forward_);
    const double backward = fullest(d.backward, backward_);
    return forward * costs.forward_pair +
           backward / static_cast<double>(kOne) * backward_pair(costs, d.activations);
  }
  /// An instance of expert `e` goes from rank r to rank s, with its pairs.
  void move(int r, int s, std::int32_t e) {
    for (Loads* loads : {&forward_, &backward_}) {
      if (loads->rows > 0) {
        loads->at(s, e) = std::exchange(loads->at(r, e), 0);
      }
    }
  }

 private:
  double fullest(std::span<const std::int64_t> weights, Loads& last) {
    if (last.rows != index_.ranks || last.cols != index_.experts) {
      last = Loads(index_.ranks, index_.experts);
    }
    for (std::size_t i = 0; i < start_.size(); ++i) {
      start_[i] = last.at(index_.rank[i], index_.expert[i]);
    }
    const std::int64_t most = balancer_.split(index_, weights, start_, loads_);
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      last.at(index_.rank[i], index_.expert[i]) = loads_[i];
    }
    return static_cast<double>(most);
  }

  InstanceIndex index_;
  Balancer balancer_;
  std::vector<std::int64_t> start_, loads_;
  Loads forward_, backward_;  // [R, E]
};

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

void sort_row(Placement& placement, int rank) {
  auto row = placement.row(rank);
  std::sort(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
    return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);  // empty ones last
  });
}

/// A placement whose instances change places between nodes.
class Swapper {
 public:
  Swapper(const PlanCosts& costs, const PlacementDemand& d, Placement placement)
      : costs_(costs),
        d_(d),
        far_(far_seconds(costs, d)),
        nodes_(d.cluster, *d.sources, placement),
        far_pairs_(nodes_.far()),
        placement_(std::move(placement)),
        here_(placement_.rows, d.cluster.experts),
        first_slot_(placement_.rows, d.cluster.experts, -1),
        swaps_(placement_.cols),
        now_(seconds()) {
    for (int r = 0; r < placement_.rows; ++r) {
      for (const std::int32_t e : placement_.row(r)) {
        if (e >= 0) {
          here_.at(r, e) = 1;
        }
      }
    }
    for (std::size_t e = 0; e < d.forward.size(); ++e) {
      work_.push_back(static_cast<double>(d.forward[e]) * costs.forward_pair +
                      static_cast<double>(d.backward[e]) / static_cast<double>(kOne) *
                          backward_pair(costs, d.activations));
    }
  }

  /// Tries swaps, best first; whether any was kept.
  bool pass() {
    collect();
    bool better = false;
    const auto fits = [this](const Swap& swap) { return this->fits(swap); };
    const auto gone = [this](const Swap& swap) { return left_[swap.a] != 0 || left_[swap.b] != 0; };
    for (int tries = 64 + 4 * d_.cluster.ranks; tries > 0; --tries) {
      const Swap* swap = swaps_.next(fits, gone);
      if (swap == nullptr) {
        break;
      }
      const auto [r, a, s, b] = experts_of(*swap);
      exchange(r, a, s, b);
      const double then = seconds();
      if (then < now_) {
        now_ = then;
        better = true;
        if (first_slot_.at(s, a) >= 0 || first_slot_.at(r, b) >= 0) {
          swaps_.bring_back();
        }
      } else {
        exchange(r, b, s, a);
      }
    }
    return better;
  }

  Placement take() { return std::move(placement_); }

 private:
  double seconds() {
    return compute_(costs_, d_, placement_) + far_ * static_cast<double>(far_pairs_);
  }

  /// All swaps that leave fewer pairs far, by node pairs: what an expert's leaving
  /// changes is the same for all ranks of a node.
  void collect() {
    begin_pass();
    struct Leaving {
      std::uint32_t slot;  // among all ranks'
      std::int32_t expert;
      std::int64_t change;
    };
    std::vector<Leaving> ours, theirs;
    const int width = node_width(d_.cluster);
    const auto list = [&](int from, int to, std::vector<Leaving>& out) {
      out.clear();
      const int end = std::min((from + 1) * width, d_.cluster.ranks);
      for (int slot = from * width * placement_.cols; slot < end * placement_.cols; ++slot) {
        const std::int32_t e = first_.values[at(slot)];
        if (e >= 0) {
          out.push_back({static_cast<std::uint32_t>(slot), e, nodes_.change(e, from, to)});
        }
      }
    };
    swaps_.clear();
    for (int from = 0; from < node_count(d_.cluster); ++from) {
      for (int to = from + 1; to < node_count(d_.cluster); ++to) {
        list(from, to, ours);
        list(to, from, theirs);
        for (const Leaving& a : ours) {
          for (const Leaving& b : theirs) {
            const std::int64_t change = a.change + b.change;
            if (change < 0 && a.expert != b.expert) {
              // Hubs make up for some of the difference in work.
              const double more = work_[at(a.expert)] - work_[at(b.expert)];
              const double off = more > 0 ? more : -more;
              swaps_.push({far_ * static_cast<double>(-change) - off / 8, a.slot, b.slot});
            }
          }
        }
      }
    }
    swaps_.finish();
  }

  /// Rank r's expert a with rank s's expert b.
  struct Experts {
    int r;
    std::int32_t a;
    int s;
    std::int32_t b;
  };
  Experts experts_of(const Swap& swap) const {
    const auto slots = static_cast<std::uint32_t>(placement_.cols);
    return {static_cast<int>(swap.a / slots), first_.values[swap.a],
            static_cast<int>(swap.b / slots), first_.values[swap.b]};
  }

  void begin_pass() {
    first_ = placement_;
    left_.assign(first_.values.size(), 0);
    std::fill(first_slot_.values.begin(), first_slot_.values.end(), -1);
    for (std::size_t i = 0; i < first_.values.size(); ++i) {
      if (first_.values[i] >= 0) {
        first_slot_.at(static_cast<int>(i) / first_.cols, first_.values[i]) =
            static_cast<std::int32_t>(i);
      }
    }
  }

  /// Whether it is still there to be made, and still leaves fewer pairs far.
  bool fits(const Swap& swap) const {
    if (left_[swap.a] != 0 || left_[swap.b] != 0) {
      return false;
    }
    const auto [r, a, s, b] = experts_of(swap);
    const int from = node_of(d_.cluster, r);
    const int to = node_of(d_.cluster, s);
    return here_.at(s, a) == 0 && here_.at(r, b) == 0 &&
           nodes_.change(a, from, to) + nodes_.change(b, to, from) < 0;
  }

  void exchange(int r, std::int32_t a, int s, std::int32_t b) {
    const auto row_r = placement_.row(r);
    const auto row_s = placement_.row(s);
    std::swap(*std::find(row_r.begin(), row_r.end(), a), *std::find(row_s.begin(), row_s.end(), b));
    const auto goes = [&](std::int32_t e, int leaves, int comes) {
      here_.at(leaves, e) = 0;
      here_.at(comes, e) = 1;
      if (const std::int32_t slot = first_slot_.at(leaves, e); slot >= 0) {
        left_[static_cast<std::size_t>(slot)] = 1;
      }
      if (const std::int32_t slot = first_slot_.at(comes, e); slot >= 0) {
        left_[static_cast<std::size_t>(slot)] = 0;
      }
    };
    goes(a, r, s);
    goes(b, s, r);
    const int from = node_of(d_.cluster, r);
    const int to = node_of(d_.cluster, s);
    far_pairs_ += nodes_.change(a, from, to) + nodes_.change(b, to, from);
    nodes_.move(a, from, to);
    nodes_.move(b, to, from);
    compute_.move(r, s, a);
    compute_.move(s, r, b);
  }

  const PlanCosts& costs_;
  const PlacementDemand& d_;
  double far_;
  NodeTables nodes_;
  std::int64_t far_pairs_;
  Placement placement_;
  Table<std::uint8_t> here_;  // [R, E]
  // When the pass began: the placement, each expert's place in it [R, E] or -1, and
  // whether it has left since [R * S].
  Placement first_;
  Table<std::int32_t> first_slot_;
  std::vector<std::uint8_t> left_;
  SwapList swaps_;
  ComputeSeconds compute_;
  std::vector<double> work_;  // [E] seconds of its pairs' GEMMs
  double now_;
};

}  // namespace

std::int64_t far_pairs(const Cluster& cluster, const Counts& demand, const Placement& placement) {
  return NodeTables(cluster, demand, placement).far();
}

double placement_seconds(const PlanCosts& costs, const PlacementDemand& demand,
                         const Placement& placement) {
  return ComputeSeconds()(costs, demand, placement) +
         far_seconds(costs, demand) *
             static_cast<double>(far_pairs(demand.cluster, *demand.sources, placement));
}

Placement bring_near(const PlanCosts& costs, const PlacementDemand& d, Placement placement) {
  if (!costs.known() || far_seconds(costs, d) <= 0 || node_count(d.cluster) < 2) {
    return placement;
  }
  Swapper swapper(costs, d, std::move(placement));
  for (int pass = 0; pass < 3 && swapper.pass(); ++pass) {
  }
  placement = swapper.take();
  for (int r = 0; r < placement.rows; ++r) {
    sort_row(placement, r);
  }
  return placement;
}

Placement place_in_step(const PlanCosts& costs, const PlacementDemand& d, const Placement& present,
                        std::span<const Placement> candidates) {
  // Without costs, work counts in FLOPs and fetching is free.
  PlanCosts priced = costs;
  if (!costs.known()) {
    priced.forward_pair = 1;
    priced.backward_pair = 2;
    priced.recompute_pair = 2.0 / 3;
  }
  const auto seconds = [&](const Placement& placement) {
    return placement_seconds(priced, d, placement) +
           most_used_slots(placement) * priced.fetch_instance;
  };
  const Placement* best = &present;
  const double stay = seconds(present);
  double least = stay - stay / 200;
  for (const Placement& candidate : candidates) {
    const double go = seconds(candidate);
    if (go < least) {
      best = &candidate;
      least = go;
    }
  }
  return *best;
}

}  // namespace lrmoe::plan
