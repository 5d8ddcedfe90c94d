#include "lrmoe/plan/hubs.h"

#include <algorithm>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/tied.h"

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class Hubs {
 public:
  Hubs(const Cluster& cluster, std::span<const PhaseLoad> weights, const HubShape& shape)
      : ranks_(cluster.ranks),
        slots_(cluster.slots),
        experts_(cluster.experts),
        spare_(std::int64_t{ranks_} * slots_ - experts_),
        connected_(static_cast<int>(std::min<std::int64_t>(ranks_, spare_ + 1))),
        hubs_(std::clamp(shape.hubs, 1, std::min(experts_, connected_))),
        border_(shape.border),
        lean_(shape.lean),
        apart_(shape.apart),
        weights_(weights),
        rank_(at(ranks_)),
        off_(at(hubs_)),
        placement_(ranks_, slots_, -1),
        used_(at(ranks_), 0) {
    LRMOE_ASSERT(spare_ >= 0 && weights.size() == at(experts_), "[place_hubs] tables do not fit");
  }

  Placement run() {
    form_groups();
    share_spare_slots();
    pack();
    if (lean_ > 0) {
      fit_tied(rank_, weights_, hubs_, lean_);
    } else {
      // With slots beyond the tree there is more than one way to fill up a rank.
      const bool tight = spare_ < 2 * (std::int64_t{ranks_} - 1);
      near_ = kMeanLoad / (tight ? 64 : 12);
      for (int pass = 0; pass < (tight ? 3 : 2) && swap_pass(); ++pass) {
      }
    }
    write();
    return std::move(placement_);
  }

 private:
  using Rank = HubRank;

  const PhaseLoad& weight(int e) const { return weights_[at(e)]; }
  /// Where a group's ranks are off their targets together, its hub must give way.
  bool counts(const Rank& r) const { return r.group > 0 && r.parent < 0; }

  /// Which ranks each hub fills up, and what their whole experts should weigh.
  void form_groups() {
    const int borders = hubs_ - 1;
    std::int64_t mass = 0;
    for (int k = 0; k < hubs_; ++k) {
      mass += weight(k).sum() / 2;
    }
    // What a rank leaves open for its hub, and a border for its two.
    const std::int64_t open =
        std::max<std::int64_t>(2 * mass / (2 * connected_ + (border_ - 2) * borders), 1);
    const std::int64_t border_open = std::min(border_ * open / 2, kMeanLoad);
    // Every hub but the first shares a border with the one that has most left.
    std::vector<std::int64_t> left(at(hubs_));
    std::vector<int> parent(at(hubs_), 0);
    for (int k = 0; k < hubs_; ++k) {
      left[at(k)] = weight(k).sum() / 2;
      if (k > 0) {
        const auto most = std::max_element(left.begin(), left.begin() + k);
        parent[at(k)] = static_cast<int>(most - left.begin());
        *most -= border_open / 2;
        left[at(k)] -= border_open / 2;
      }
    }
    int ranks_left = connected_ - borders;
    std::vector<int> size(at(hubs_), 0);
    for (int k = hubs_ - 1; k > 0; --k) {
      const std::int64_t wanted = (std::max<std::int64_t>(left[at(k)], 0) + open / 2) / open;
      size[at(k)] = static_cast<int>(std::min<std::int64_t>(wanted, ranks_left));
      ranks_left -= size[at(k)];
    }
    size[0] = ranks_left;
    int next = 0;
    for (int k = 0; k < hubs_; ++k) {
      const std::int64_t all = std::max<std::int64_t>(weight(k).sum() / 2, 1);
      for (int i = 0; i < size[at(k)]; ++i, ++next) {
        const std::int64_t part =
            std::clamp<std::int64_t>(left[at(k)] / size[at(k)], std::int64_t{0}, kMeanLoad);
        Rank& r = rank_[at(next)];
        r.group = k;
        r.hub_slots = 1;
        r.target = {kMeanLoad - std::min(mul_div(part, weight(k).forward, all), kMeanLoad),
                    kMeanLoad - std::min(mul_div(part, weight(k).backward, all), kMeanLoad)};
      }
      if (k > 0) {
        Rank& r = rank_[at(next++)];
        r.group = k;
        r.parent = parent[at(k)];
        r.hub_slots = 2;
        r.target = {kMeanLoad - border_open, kMeanLoad - border_open};
      }
    }
    for (; next < ranks_; ++next) {
      rank_[at(next)].target = {kMeanLoad, kMeanLoad};
    }
  }

  /// The slots that the tree of hubs does not need, to ranks with the fewest hubs first.
  void share_spare_slots() {
    std::int64_t left = spare_ + 1 - connected_;
    for (int round = 1; left > 0 && round <= slots_; ++round) {
      for (int r = 0; left > 0 && r < ranks_; ++r) {
        Rank& rank = rank_[at(r)];
        if (rank.hub_slots <= round && rank.hub_slots < slots_) {
          ++rank.hub_slots;
          --left;
        }
      }
    }
  }

  /// By falling weight, to the rank with most room in the phase where it has less.
  void pack() {
    for (int e = hubs_; e < experts_; ++e) {
      Rank* best = nullptr;
      std::int64_t most = 0;
      for (Rank& rank : rank_) {
        if (static_cast<int>(rank.whole.size()) + rank.hub_slots < slots_) {
          const PhaseLoad room = rank.target - rank.load;
          const std::int64_t less = std::min(room.forward, room.backward);
          if (best == nullptr || less > most) {
            best = &rank;
            most = less;
          }
        }
      }
      LRMOE_ASSERT(best != nullptr, "[place_hubs] no slot is left");
      best->whole.push_back(e);
      best->load += weight(e);
    }
    for (const Rank& r : rank_) {
      if (counts(r)) {
        off_[at(r.group)] += r.load - r.target;
      }
    }
  }

  std::int64_t group_change(const Rank& r, const PhaseLoad& change) const {
    if (!counts(r)) {
      return 0;
    }
    const PhaseLoad& off = off_[at(r.group)];
    return ((off + change).square() - off.square()) / 4;
  }

  void exchange(Rank& r, const PhaseLoad& change) {
    r.load += change;
    if (counts(r)) {
      off_[at(r.group)] += change;
    }
  }

  /// Swaps whole experts of two ranks while that brings both nearer to their targets.
  bool swap_between(Rank& x, Rank& y) {
    bool swapped = false;
    const bool apart = x.group != y.group || x.parent != y.parent;
    for (int& a : x.whole) {
      for (int& b : y.whole) {
        const PhaseLoad change = weight(b) - weight(a);
        const PhaseLoad back = weight(a) - weight(b);
        const PhaseLoad dx = x.load - x.target;
        const PhaseLoad dy = y.load - y.target;
        std::int64_t more =
            (dx + change).square() + (dy + back).square() - dx.square() - dy.square();
        if (apart) {
          more += group_change(x, change) + group_change(y, back);
        }
        if (more < 0) {
          exchange(x, change);
          exchange(y, back);
          std::swap(a, b);
          swapped = true;
        }
      }
    }
    return swapped;
  }

  bool swap_pass() {
    bool swapped = false;
    for (int i = 0; i < ranks_; ++i) {
      for (int j = i + 1; j < ranks_; ++j) {
        Rank& x = rank_[at(i)];
        Rank& y = rank_[at(j)];
        if ((x.load - x.target).square() + (y.load - y.target).square() > near_ * near_) {
          swapped = swap_between(x, y) || swapped;
        }
      }
    }
    return swapped;
  }

  bool holds(int rank, int e) const {
    const auto row = placement_.row(rank);
    return std::find(row.begin(), row.end(), e) != row.end();
  }
  bool add(int rank, int e) {
    if (used_[at(rank)] == slots_ || holds(rank, e)) {
      return false;
    }
    placement_.at(rank, used_[at(rank)]++) = e;
    return true;
  }

  /// Of the hubs that rank r does not hold the one whose kept share is farthest from
  /// that of its own, times what it has per instance; -1: none differs.
  int farthest(int r, std::span<const std::int64_t> count) const {
    const std::int64_t own = kept_share(weight(rank_[at(r)].group));
    int best = -1;
    std::int64_t most = 0;
    for (int e = 0; e < hubs_; ++e) {
      const std::int64_t share = kept_share(weight(e));
      const std::int64_t worth =
          std::max(share - own, own - share) * (weight(e).most() / (count[at(e)] + 1));
      if (worth > most && !holds(r, e)) {
        best = e;
        most = worth;
      }
    }
    return best;
  }

  void write() {
    std::vector<std::int64_t> count(at(experts_), 0);
    const auto give = [&](int rank, int e) { count[at(e)] += add(rank, e) ? 1 : 0; };
    for (int i = 0; i < ranks_; ++i) {
      const Rank& rank = rank_[at(i)];
      for (const int e : rank.whole) {
        give(i, e);
      }
      for (const int k : {rank.group, rank.parent}) {
        if (k >= 0) {
          give(i, k);
        }
      }
    }
    if (apart_) {
      for (int r = 0; r < ranks_; ++r) {
        while (rank_[at(r)].group >= 0 && used_[at(r)] < slots_) {
          const int hub = farthest(r, count);
          if (hub < 0) {
            break;
          }
          give(r, hub);
        }
      }
    }
    share_rest(placement_, used_, weights_);
  }

  int ranks_, slots_, experts_;
  std::int64_t spare_;  // slots beyond one per expert
  int connected_;       // ranks that share hubs: a tree over them takes that many less one
  int hubs_;
  int border_;
  int lean_;
  bool apart_;
  std::int64_t near_ = 0;  // two ranks that are so near to their targets swap nothing
  std::span<const PhaseLoad> weights_;
  std::vector<Rank> rank_;
  std::vector<PhaseLoad> off_;  // of each group, what its ranks are off their targets
  Placement placement_;
  std::vector<int> used_;
};

}  // namespace

void share_rest(Placement& placement, std::vector<int>& used, std::span<const PhaseLoad> weights) {
  const int experts = static_cast<int>(weights.size());
  std::vector<std::int64_t> count(weights.size(), 0);
  for (const std::int32_t e : placement.values) {
    if (e >= 0) {
      ++count[at(e)];
    }
  }
  const auto holds = [&](int rank, int e) {
    const auto row = placement.row(rank);
    return std::find(row.begin(), row.end(), e) != row.end();
  };
  for (bool more = true; more;) {
    more = false;
    for (int r = 0; r < placement.rows; ++r) {
      int best = -1;
      for (int e = 0; e < experts && used[at(r)] < placement.cols; ++e) {
        if (best >= 0 && weights[at(e)].most() * count[at(best)] <= weights[at(best)].most()) {
          break;  // sorted: no other can have more, even with one instance
        }
        if (!holds(r, e) && (best < 0 || weights[at(e)].most() * count[at(best)] >
                                             weights[at(best)].most() * count[at(e)])) {
          best = e;
        }
      }
      if (best >= 0) {
        placement.at(r, used[at(r)]++) = best;
        ++count[at(best)];
        more = true;
      }
    }
  }
}

Placement place_hubs(const Cluster& cluster, std::span<const PhaseLoad> weights,
                     const HubShape& shape) {
  return Hubs(cluster, weights, shape).run();
}

}  // namespace lrmoe::plan
