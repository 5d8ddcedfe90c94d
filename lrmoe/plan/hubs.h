// Pass "place", its core: a placement on which both phases can be split evenly.
//
// The heaviest experts become hubs: they stand on many ranks, and what they bring
// to a rank is whatever its whole experts leave open. All others stand once. With
// R - 1 spare slots the hubs join all ranks into a tree; further slots close
// cycles, so that demand which drifts finds a way round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// A load in both phases, in 1/kMeanLoad of a rank's mean.
struct PhaseLoad {
  std::int64_t forward = 0;
  std::int64_t backward = 0;

  std::int64_t sum() const { return forward + backward; }
  std::int64_t most() const { return forward > backward ? forward : backward; }
  std::int64_t square() const { return forward * forward + backward * backward; }
  PhaseLoad& operator+=(const PhaseLoad& o) {
    forward += o.forward;
    backward += o.backward;
    return *this;
  }
  friend PhaseLoad operator-(const PhaseLoad& x, const PhaseLoad& y) {
    return {x.forward - y.forward, x.backward - y.backward};
  }
  friend PhaseLoad operator+(PhaseLoad x, const PhaseLoad& y) { return x += y; }
};

inline constexpr std::int64_t kMeanLoad = std::int64_t{1} << 16;

struct HubShape {
  int hubs = 1;    // how many of the heaviest experts
  int border = 4;  // a rank where two hubs meet leaves border / 2 times as much open as others
  /// Above 0: backward pairs run where their forward pass did (tied.h). The larger, the
  /// less it counts that ranks leave open what they should.
  int lean = 0;
  /// Further slots go to the hub whose kept share differs most from that of the rank's
  /// hub and which has most per instance, so that two ranks can exchange their pairs.
  bool apart = false;
};

/// Places every expert; a tree of hubs takes R - 1 of the spare slots, the rest go
/// to whichever has most per instance (HubShape::apart apart). `weights` [E], heaviest first by
/// most(). R * S >= E. A slot stays empty where its rank holds every expert.
Placement place_hubs(const Cluster& cluster, std::span<const PhaseLoad> weights,
                     const HubShape& shape);

/// Fills free slots, one of each rank in turn, with the expert that has most per
/// instance and does not stand there. `weights` [E], heaviest first by most(); `used` [R].
void share_rest(Placement& placement, std::vector<int>& used, std::span<const PhaseLoad> weights);

}  // namespace lrmoe::plan
