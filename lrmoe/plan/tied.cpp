#include "lrmoe/plan/tied.h"

#include <algorithm>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Forward pairs that a rank cannot get away with, against backward ones off the mean.
constexpr std::int64_t kForwardWeight = 16;
constexpr int kPasses = 3;
constexpr std::int64_t kNear = kMeanLoad / 128;  // two ranks so near to the mean swap nothing

class Tied {
 public:
  Tied(std::span<HubRank> ranks, std::span<const PhaseLoad> weights, int hubs, int lean)
      : ranks_(ranks),
        weights_(weights),
        lean_(lean),
        parent_(at(hubs), -1),
        border_(at(hubs), -1),
        depth_(at(hubs), 0),
        piece_(at(hubs), 0),
        share_(at(hubs), 0),
        cost_(ranks.size()) {
    for (int k = 0; k < hubs; ++k) {
      share_[at(k)] = kept_share(weights[at(k)]);
    }
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
      if (ranks[at(r)].parent >= 0) {
        const int k = ranks[at(r)].group;
        parent_[at(k)] = ranks[at(r)].parent;
        border_[at(k)] = r;
        depth_[at(k)] = depth_[at(parent_[at(k)])] + 1;  // parents have lower numbers
      }
    }
    for (int k = hubs - 1; k > 0; --k) {
      piece_[at(k)] = weights[at(k)].forward;
    }
    for (const HubRank& r : ranks) {
      if (r.group > 0 && r.parent < 0) {
        piece_[at(r.group)] -= kMeanLoad - r.load.forward;
      }
    }
    for (int k = hubs - 1; k > 0; --k) {  // children before their parents
      const int p = parent_[at(k)];
      if (p > 0) {
        piece_[at(p)] -= kMeanLoad - ranks[at(border_[at(k)])].load.forward - piece_[at(k)];
      }
    }
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
      cost_[at(r)] = cost(r, ranks[at(r)].load, moved(r, 0));
    }
  }

  void run() {
    const auto size = static_cast<std::int64_t>(ranks_.size() * weights_.size());
    for (int pass = size > kLargeSearch ? kPasses - 1 : 0; pass < kPasses && sweep(); ++pass) {
    }
  }

 private:
  /// The hub whose share of other ranks changes with what rank r's whole experts weigh.
  int hub_of(int r) const {
    const HubRank& rank = ranks_[at(r)];
    return rank.parent >= 0 ? rank.parent : rank.group;
  }
  /// A border's piece of its own hub after a change of it.
  std::int64_t moved(int r, std::int64_t change) const {
    const HubRank& rank = ranks_[at(r)];
    return rank.parent >= 0 ? piece_[at(rank.group)] + change : 0;
  }

  std::int64_t cost(int r, const PhaseLoad& load, std::int64_t piece) const {
    const HubRank& rank = ranks_[at(r)];
    const std::int64_t open = kMeanLoad - load.forward;
    if (rank.group < 0) {
      return open * open + (kMeanLoad - load.backward) * (kMeanLoad - load.backward);
    }
    std::int64_t beyond = std::max<std::int64_t>(-open, 0);
    std::int64_t hubs = 0;
    if (rank.parent < 0) {
      hubs = std::max<std::int64_t>(open, 0) * share_[at(rank.group)];
    } else {
      const std::int64_t most = std::max<std::int64_t>(open, 0);
      const std::int64_t own = std::clamp<std::int64_t>(piece, 0, most);
      beyond += piece > most ? piece - most : own - piece;
      hubs = own * share_[at(rank.group)] + (most - own) * share_[at(rank.parent)];
    }
    const std::int64_t off = load.backward + hubs / kMeanLoad - kMeanLoad;
    return off * off + kForwardWeight * beyond * beyond + lean_cost(r, load);
  }
  std::int64_t lean_cost(int r, const PhaseLoad& load) const {
    const HubRank& rank = ranks_[at(r)];
    const std::int64_t lean = load.forward - rank.target.forward;
    return rank.group < 0 ? 0 : lean * lean / lean_;
  }

  /// Borders on the ways from both ranks' hubs to where these meet; when x gets more and
  /// y as much less, their pieces grow (1) or shrink (-1) by as much.
  void ways(int x, int y) {
    way_.clear();
    int a = hub_of(x);
    int b = hub_of(y);
    while (a != b) {
      const bool up_a = b < 0 || (a >= 0 && depth_[at(a)] >= depth_[at(b)]);
      int& k = up_a ? a : b;
      if (k > 0) {
        way_.push_back({k, up_a ? 1 : -1});
      }
      k = k >= 0 ? parent_[at(k)] : -1;
      if (a <= 0 && b <= 0) {
        break;
      }
    }
  }

  bool try_swap(int x, int y, int& a, int& b) {
    const PhaseLoad change = weights_[at(b)] - weights_[at(a)];
    const PhaseLoad back = weights_[at(a)] - weights_[at(b)];
    const PhaseLoad load_x = ranks_[at(x)].load + change;
    const PhaseLoad load_y = ranks_[at(y)].load + back;
    std::int64_t piece_x = moved(x, 0);
    std::int64_t piece_y = moved(y, 0);
    std::int64_t before = cost_[at(x)] + cost_[at(y)];
    std::int64_t after = 0;
    for (const auto& [k, sign] : way_) {
      const int r = border_[at(k)];
      const std::int64_t piece = piece_[at(k)] + sign * change.forward;
      if (r == x) {
        piece_x = piece;
      } else if (r == y) {
        piece_y = piece;
      } else {
        before += cost_[at(r)];
        after += cost(r, ranks_[at(r)].load, piece);
      }
    }
    if (after >= before) {
      return false;
    }
    const std::int64_t cost_x = cost(x, load_x, piece_x);
    const std::int64_t cost_y = cost(y, load_y, piece_y);
    if (after + cost_x + cost_y >= before) {
      return false;
    }
    ranks_[at(x)].load = load_x;
    ranks_[at(y)].load = load_y;
    for (const auto& [k, sign] : way_) {
      piece_[at(k)] += sign * change.forward;
      const int r = border_[at(k)];
      cost_[at(r)] = cost(r, ranks_[at(r)].load, piece_[at(k)]);
    }
    cost_[at(x)] = cost_x;
    cost_[at(y)] = cost_y;
    std::swap(a, b);
    return true;
  }

  bool sweep() {
    bool swapped = false;
    const int ranks = static_cast<int>(ranks_.size());
    for (int x = 0; x < ranks; ++x) {
      for (int y = x + 1; y < ranks; ++y) {
        if (cost_[at(x)] + cost_[at(y)] - lean_cost(x, ranks_[at(x)].load) -
                lean_cost(y, ranks_[at(y)].load) <=
            kNear * kNear) {
          continue;
        }
        ways(x, y);
        for (int& a : ranks_[at(x)].whole) {
          for (int& b : ranks_[at(y)].whole) {
            swapped = try_swap(x, y, a, b) || swapped;
          }
        }
      }
    }
    return swapped;
  }

  std::span<HubRank> ranks_;
  std::span<const PhaseLoad> weights_;
  int lean_;
  std::vector<int> parent_, border_, depth_;  // of each hub
  std::vector<std::int64_t> piece_;           // of a hub at its own border, forward
  std::vector<std::int64_t> share_;           // backward per forward of a hub, in kMeanLoad
  std::vector<std::int64_t> cost_;            // of each rank
  std::vector<std::pair<int, int>> way_;
};

}  // namespace

void fit_tied(std::span<HubRank> ranks, std::span<const PhaseLoad> weights, int hubs, int lean) {
  Tied(ranks, weights, hubs, lean).run();
}

}  // namespace lrmoe::plan
