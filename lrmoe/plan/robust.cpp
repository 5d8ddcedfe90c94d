#include "lrmoe/plan/robust.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "lrmoe/plan/excess.h"
#include "lrmoe/plan/exchange.h"
#include "lrmoe/plan/fill.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/hubs.h"
#include "lrmoe/plan/tied.h"

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Of a rank's mean; with less excess a placement counts as even.
constexpr std::int64_t kLittle = kMeanLoad / 400;

/// SplitMix64: scatters an index over all integers.
std::uint64_t scatter(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// The experts by falling weight, and their weights so that a rank's mean is kMeanLoad.
struct Sorted {
  std::vector<std::int32_t> order;
  std::vector<PhaseLoad> weights;

  Sorted(std::span<const std::int64_t> forward, std::span<const std::int64_t> backward, int ranks) {
    const auto all = scaled(forward, ranks);
    const auto all_backward = scaled(backward, ranks);
    order.resize(forward.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](std::int32_t e) {
      const PhaseLoad w{all[at(e)], all_backward[at(e)]};
      return std::tuple(-w.most(), -w.forward, -w.backward, e);
    };
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    for (const std::int32_t e : order) {
      weights.push_back({all[at(e)], all_backward[at(e)]});
    }
  }

  static std::vector<std::int64_t> scaled(std::span<const std::int64_t> weights, int ranks) {
    const std::int64_t all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    const auto experts = static_cast<std::int64_t>(weights.size());
    std::vector<std::int64_t> out;
    for (const std::int64_t w : weights) {
      out.push_back(all > 0 ? mul_div(w, kMeanLoad * ranks, all) : kMeanLoad * ranks / experts);
    }
    return out;
  }
};

/// The weights of both phases, then variations: small ones and large ones, each of
/// one phase, in pairs of opposite ones.
class Trials {
 public:
  Trials(std::span<const PhaseLoad> loads, int ranks, int small, int large, int drift, int tied)
      : small_(2 + small), tied_(tied) {
    add(loads, ranks, &PhaseLoad::forward, 0, 0, 0);
    add(loads, ranks, &PhaseLoad::backward, 0, 0, 0);
    for (int v = 0; v < small + large; ++v) {
      const auto phase = v / 2 % 2 == 0 ? &PhaseLoad::forward : &PhaseLoad::backward;
      // Large: up to a factor of (1 + drift) ^ 4.
      add(loads, ranks, phase, v / 2, v % 2 == 0 ? drift : -drift, v < small ? 1 : 4);
    }
  }

  /// What the fuller phase's fullest rank is above the mean, each split by itself.
  std::int64_t excess(const Placement& placement) const {
    ReplicaFlow flow(placement, static_cast<int>(weights_[0].size()));
    return std::max(flow.excess(weights_[0], means_[0]), flow.excess(weights_[1], means_[1]));
  }

  /// Stops where it passes `limit`.
  std::int64_t score(const Placement& placement, std::int64_t limit) const {
    ReplicaFlow flow(placement, static_cast<int>(weights_[0].size()));
    std::int64_t sum = 0;
    std::size_t first = 0;
    if (tied_ > 0) {
      const std::int64_t forward = flow.excess(weights_[0], means_[0]);
      sum = forward * (forward > kMeanLoad / 1000 ? 1024 : 32);  // prices cannot mend it
      sum += tied_excess(placement, flow) * tied_ / std::max(placement.rows / 32, 1);
      first = 2;
    }
    for (std::size_t i = first; i < weights_.size() && sum < limit; ++i) {
      sum += flow.excess(weights_[i], means_[i]) * (i < 2 ? 32 : i < at(small_) ? 4 : 1);
    }
    return sum;
  }

 private:
  /// Backward excess over all ranks, where the flow's forward split and an exchange of
  /// pairs decide it.
  std::int64_t tied_excess(const Placement& placement, const ReplicaFlow& flow) const {
    std::vector<std::int64_t> share, loads;
    for (std::size_t e = 0; e < weights_[0].size(); ++e) {
      share.push_back(weights_[0][e] > 0 ? kept_share({weights_[0][e], weights_[1][e]}) : 0);
    }
    flow.loads(weights_[0], loads);
    InstanceIndex index;
    index.build(placement, static_cast<int>(share.size()));
    const std::int64_t capacity = means_[1] + means_[1] / 100;
    return Exchange().run(index, share, capacity * kMeanLoad, placement.rows, loads) / kMeanLoad;
  }

  void add(std::span<const PhaseLoad> loads, int ranks, std::int64_t PhaseLoad::*phase,
           int variation, int drift, int times) {
    std::vector<std::int64_t> weights;
    const auto steps = static_cast<std::uint64_t>(2 * std::max(drift, -drift) + 1);
    std::int64_t all = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const auto x =
          scatter((static_cast<std::uint64_t>(i) << 8U) + static_cast<std::uint64_t>(variation));
      const std::int64_t turn = static_cast<std::int64_t>(x % steps) - std::max(drift, -drift);
      const std::int64_t percent = drift < 0 ? -turn : turn;
      std::int64_t w = loads[i].*phase;
      for (int step = 0; step < times; ++step) {
        w = percent >= 0 ? w * (100 + percent) / 100 : w * 100 / (100 - percent);
      }
      weights.push_back(w);
      all += w;
    }
    weights_.push_back(std::move(weights));
    means_.push_back((all + ranks - 1) / ranks);
  }

  int small_;
  int tied_;  // weight of backward excess that follows from the forward split; 0: it does not
  std::vector<std::vector<std::int64_t>> weights_;
  std::vector<std::int64_t> means_;
};

/// Shapes in the order in which they are tried.
std::vector<HubShape> shapes_for(const Cluster& cluster, std::span<const PhaseLoad> weights,
                                 bool tied) {
  const std::int64_t spare = std::int64_t{cluster.ranks} * cluster.slots - cluster.experts;
  const int most =
      static_cast<int>(std::min<std::int64_t>({cluster.ranks, cluster.experts, spare + 1}));
  std::vector<HubShape> shapes;
  const auto try_hubs = [&](int hubs, int border) {
    const HubShape shape{std::clamp(hubs, 1, most), border};
    const auto same = [&](const HubShape& s) {
      return s.hubs == shape.hubs && s.border == shape.border;
    };
    if (std::none_of(shapes.begin(), shapes.end(), same)) {
      shapes.push_back(shape);
    }
  };
  // Experts that are too heavy to stand whole beside another.
  int heavy = 0;
  while (heavy < most && weights[at(heavy)].most() * 4 > kMeanLoad * 3) {
    ++heavy;
  }
  if (spare >= 2 * (std::int64_t{cluster.ranks} - 1)) {
    const std::array<int, 4> wide =
        tied ? std::array<int, 4>{heavy, heavy + most / 16, heavy + most / 8, most / 2}
             : std::array<int, 4>{most, most / 2, heavy, most * 3 / 4};
    for (const int hubs : wide) {
      try_hubs(hubs, 4);
    }
  }
  for (int step = 0; step < 24; ++step) {
    for (const int border : {4, 3}) {
      try_hubs(heavy + std::max(1, most / 32) * (step % 2 == 0 ? step / 2 : -(step + 1) / 2),
               border);
    }
  }
  return shapes;
}

/// Fewer slots than two trees of hubs take.
bool is_tight(const Cluster& cluster) {
  const std::int64_t spare = std::int64_t{cluster.ranks} * cluster.slots - cluster.experts;
  return spare < 2 * (std::int64_t{cluster.ranks} - 1);
}

/// How many shapes are worth their time. Where slots are short the search is harder.
std::size_t tries_for(const Cluster& cluster) {
  const bool tight = is_tight(cluster);
  const std::int64_t size = std::int64_t{cluster.ranks} * cluster.experts;
  const std::int64_t most = tight ? std::clamp(cluster.ranks * 3 / 2, 12, 48) : 4;
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>((std::int64_t{1} << (tight ? 16 : 15)) / size, 1, most));
}

/// Each shape twice, or, where further slots can go here or there, four times.
std::vector<HubShape> tied_shapes(std::span<const HubShape> shapes, bool tight, bool large) {
  std::vector<HubShape> out;
  for (HubShape shape : shapes) {
    for (const int lean : {1, 8}) {
      shape.lean = lean;
      shape.apart = true;
      out.push_back(shape);
      if (large) {
        break;
      }
      if (!tight) {
        shape.apart = false;
        out.push_back(shape);
      }
    }
  }
  return out;
}

int variations_for(std::size_t shapes, const RobustSettings& settings) {
  return std::min(settings.variations, shapes >= 12 ? 48 : shapes > 2 ? 16 : 4);
}

/// What backward excess counts beside forward excess, chosen by what both then were
/// on the routing of a real model.
int tied_weight(const Cluster& cluster, const RobustSettings& settings) {
  return !settings.tied ? 0 : is_tight(cluster) ? 4 : 16;
}

}  // namespace

Placement place_robust(const Cluster& cluster, std::span<const std::int64_t> forward,
                       std::span<const std::int64_t> backward, const RobustSettings& settings) {
  const Sorted sorted(forward, backward, cluster.ranks);
  std::vector<HubShape> shapes = shapes_for(cluster, sorted.weights, settings.tied);
  shapes.resize(std::min(shapes.size(), tries_for(cluster)));
  if (settings.tied) {
    shapes = tied_shapes(shapes, is_tight(cluster),
                         std::int64_t{cluster.ranks} * cluster.experts > kLargeSearch);
  }
  // Where slots are short, nothing stands up to large changes: small ones decide.
  const int variations = variations_for(shapes.size(), settings);
  const int large = is_tight(cluster) || settings.tied ? 0 : variations / 2;
  const int drift = is_tight(cluster) ? settings.drift * 4 / 3 : settings.drift;
  const Trials trials(sorted.weights, cluster.ranks, variations - large, large, drift,
                      tied_weight(cluster, settings));
  Placement best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto consider = [&](Placement placement) {
    const std::int64_t score = trials.score(placement, least);
    if (score < least) {
      best = std::move(placement);
      least = score;
    }
  };
  if (shapes.size() == 1) {  // nothing to compare it with
    best = place_hubs(cluster, sorted.weights, shapes[0]);
  } else {
    for (std::size_t i = 0; i < shapes.size() && least > 0; ++i) {
      consider(place_hubs(cluster, sorted.weights, shapes[i]));
    }
  }
  if (trials.excess(best) > kLittle) {
    // Hubs do not suit every demand: other ways are tried too.
    if (shapes.size() == 1) {
      least = trials.score(best, least);
    }
    if (settings.tied) {
      consider(place_hubs(cluster, sorted.weights, shapes_for(cluster, sorted.weights, false)[0]));
    }
    for (const int backward_parts : {0, 1, 2}) {  // of two
      std::vector<std::int64_t> weights;
      for (const PhaseLoad& w : sorted.weights) {
        weights.push_back(((2 - backward_parts) * w.forward + backward_parts * w.backward) / 2);
      }
      Placement filled = place_fill(cluster, sorted.weights, weights);
      if (filled.rows > 0) {
        consider(std::move(filled));
      }
    }
  }
  for (std::int32_t& e : best.values) {
    e = e < 0 ? e : sorted.order[at(e)];
  }
  for (int r = 0; r < best.rows; ++r) {
    auto row = best.row(r);
    std::sort(row.begin(), row.end(), [](std::int32_t a, std::int32_t b) {
      return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);  // empty ones last
    });
  }
  return best;
}

std::int64_t unevenness(const Placement& placement, std::span<const std::int64_t> forward,
                        std::span<const std::int64_t> backward, const RobustSettings& settings) {
  const Sorted sorted(forward, backward, placement.rows);
  const Trials trials(sorted.weights, placement.rows, settings.variations / 2,
                      settings.variations / 2, settings.drift, 0);
  std::vector<std::int32_t> place(sorted.order.size());
  for (std::size_t i = 0; i < place.size(); ++i) {
    place[at(sorted.order[i])] = static_cast<std::int32_t>(i);
  }
  Placement by_weight = placement;
  for (std::int32_t& e : by_weight.values) {
    e = e < 0 ? e : place[at(e)];
  }
  return trials.score(by_weight, std::numeric_limits<std::int64_t>::max());
}

}  // namespace lrmoe::plan
