#include "lrmoe/plan/quota.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

/// The largest tau in [0, kAllPairs) for which `fits` holds, by bisection on the
/// bits of the double (they are ordered like its values). `fits(0)` must hold.
template <class F>
double largest_tau(F fits) {
  std::uint64_t low = 0;
  auto high = std::bit_cast<std::uint64_t>(Curve::kAllPairs);
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(std::bit_cast<double>(middle)) ? low : high) = middle;
  }
  return std::bit_cast<double>(low);
}

std::int64_t sum(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t bought(std::span<const Lot> lots, double tau) {
  std::int64_t all = 0;
  for (const Lot& lot : lots) {
    all += plan::bought(lot, tau);
  }
  return all;
}

Lot make_lot(const ScoreCurves* curves, int expert, std::int64_t pairs,
             const QuotaSettings& settings) {
  return {&curve_of(curves, expert), pairs * kOne,
          pairs * std::min(settings.floor, settings.ratio)};
}

/// Capacity of a rank as the slack asks for it.
std::int64_t asked_capacity(std::int64_t target, int ranks, const QuotaSettings& settings) {
  const std::int64_t mean = (target + ranks - 1) / ranks;
  return mean + mul_div(mean, settings.slack, kOne);
}

/// The least capacity >= `least` with sum_r min(full[r], capacity) >= target.
std::int64_t water_level(std::vector<std::int64_t> full, std::int64_t target, std::int64_t least) {
  std::sort(full.begin(), full.end());
  std::int64_t below = 0;  // ranks that stay under the level
  for (std::size_t i = 0; i < full.size(); ++i) {
    const auto rest = static_cast<std::int64_t>(full.size() - i);
    const std::int64_t level = (target - below + rest - 1) / rest;
    if (level <= full[i]) {
      return std::max(least, level);
    }
    below += full[i];
  }
  return std::max(least, full.back());
}

}  // namespace

std::int64_t bought(const Lot& lot, double tau) {
  const double pairs = lot.curve->share(tau) * static_cast<double>(lot.demand);
  return std::clamp(static_cast<std::int64_t>(pairs), lot.floor, lot.demand);
}

std::vector<std::int64_t> buy(std::span<const Lot> lots, std::int64_t target) {
  const double tau = largest_tau([&](double t) { return bought(lots, t) <= target; });
  std::vector<std::int64_t> quota;
  std::int64_t rest = target;
  for (const Lot& lot : lots) {
    quota.push_back(bought(lot, tau));
    rest -= quota.back();
  }
  // The next tau buys too much: what is left is a rounding error, first come first served.
  for (std::size_t i = 0; i < lots.size() && rest > 0; ++i) {
    const std::int64_t more = std::min(rest, lots[i].demand - quota[i]);
    quota[i] += more;
    rest -= more;
  }
  LRMOE_ASSERT(rest == 0, "[quota] the target is not between the floors and the demand");
  return quota;
}

RankQuotas quota_at_ranks(const ScoreCurves* curves, const Loads& loads,
                          const QuotaSettings& settings) {
  const int ranks = loads.cols;
  std::vector<std::vector<Lot>> lots(static_cast<std::size_t>(ranks));
  std::vector<std::vector<int>> experts(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> full(static_cast<std::size_t>(ranks), 0);
  std::vector<std::int64_t> floors(static_cast<std::size_t>(ranks), 0);
  for (int e = 0; e < loads.rows; ++e) {
    for (int r = 0; r < ranks; ++r) {
      if (loads.at(e, r) > 0) {
        const auto i = static_cast<std::size_t>(r);
        lots[i].push_back(make_lot(curves, e, loads.at(e, r), settings));
        experts[i].push_back(e);
        full[i] += lots[i].back().demand;
        floors[i] += lots[i].back().floor;
      }
    }
  }
  const std::int64_t target = sum(loads.values) * settings.ratio;
  const std::int64_t asked = asked_capacity(target, ranks, settings);
  RankQuotas result{Loads(loads.rows, ranks)};
  // Floors are at most the ratio, so what they force is below the largest scaled load.
  result.capacity = water_level(full, target, asked);
  result.capacity = std::max(result.capacity, *std::max_element(floors.begin(), floors.end()));
  result.raised = result.capacity > asked;

  const auto load_at = [&](std::size_t r, double tau) {
    return std::min(bought(std::span<const Lot>(lots[r]), tau), result.capacity);
  };
  const double tau = largest_tau([&](double t) {
    std::int64_t all = 0;
    for (std::size_t r = 0; r < lots.size(); ++r) {
      all += load_at(r, t);
    }
    return all <= target;
  });
  std::vector<std::int64_t> budget(lots.size());
  std::int64_t rest = target;
  for (std::size_t r = 0; r < lots.size(); ++r) {
    budget[r] = load_at(r, tau);
    rest -= budget[r];
  }
  for (std::size_t r = 0; r < lots.size(); ++r) {
    const std::int64_t more = std::min(rest, std::min(result.capacity, full[r]) - budget[r]);
    budget[r] += more;
    rest -= more;
    const auto quota = buy(lots[r], budget[r]);
    for (std::size_t i = 0; i < quota.size(); ++i) {
      result.quota.at(experts[r][i], static_cast<int>(r)) = quota[i];
    }
  }
  LRMOE_ASSERT(rest == 0, "[quota] the ranks cannot retain the target");
  return result;
}

namespace {

/// The decomposition behind quota_of_experts.
class Decomposition {
 public:
  Decomposition(std::vector<Lot> lots, int ranks) : lots_(std::move(lots)), ranks_(ranks) {}

  /// The least capacity >= `asked` at which the floors flow and `target` can be
  /// met. Flow is concave in the capacity: Newton's steps from below end at it.
  std::int64_t least_capacity(const Instances& instances, std::int64_t target,
                              std::int64_t asked) const {
    std::vector<std::int64_t> floors;
    std::vector<std::int64_t> demands;
    for (const Lot& lot : lots_) {
      floors.push_back(lot.floor);
      demands.push_back(lot.demand);
    }
    const std::int64_t capacity = raise(instances, floors, sum(floors), asked);
    return raise(instances, demands, target, capacity);
  }

  std::vector<std::int64_t> solve(const Instances& instances, std::int64_t target,
                                  std::int64_t capacity) {
    capacity_ = capacity;
    quota_.assign(lots_.size(), 0);
    std::vector<std::int32_t> all(lots_.size());
    std::iota(all.begin(), all.end(), 0);
    part(all, instances, target);
    return quota_;
  }

 private:
  std::int64_t raise(const Instances& instances, std::span<const std::int64_t> supply,
                     std::int64_t target, std::int64_t capacity) const {
    InstanceFlow flow(instances, ranks_);
    for (std::size_t e = 0; e < supply.size(); ++e) {
      flow.raise_supply(static_cast<int>(e), supply[e]);
    }
    for (int r = 0; r < ranks_; ++r) {
      flow.raise_capacity(r, capacity);
    }
    for (std::int64_t value = flow.run(); value < target; value = flow.run()) {
      const auto full = static_cast<std::int64_t>(flow.cut().ranks.size());
      const std::int64_t step = (target - value + full - 1) / full;
      for (int r = 0; r < ranks_; ++r) {
        flow.raise_capacity(r, step);
      }
      capacity += step;
    }
    return capacity;
  }

  /// `experts` share `target`; `instances[i]` are the ranks left to experts[i].
  void part(const std::vector<std::int32_t>& experts, const Instances& instances,
            std::int64_t target) {
    std::vector<Lot> lots;
    for (const std::int32_t e : experts) {
      lots.push_back(lots_[static_cast<std::size_t>(e)]);
    }
    const auto quota = buy(lots, target);
    InstanceFlow flow(instances, ranks_);
    for (std::size_t i = 0; i < quota.size(); ++i) {
      flow.raise_supply(static_cast<int>(i), quota[i]);
    }
    for (int r = 0; r < ranks_; ++r) {
      flow.raise_capacity(r, capacity_);
    }
    if (flow.run() == target) {
      for (std::size_t i = 0; i < quota.size(); ++i) {
        quota_[static_cast<std::size_t>(experts[i])] = quota[i];
      }
      return;
    }
    const InstanceFlow::Cut cut = flow.cut();
    std::vector<char> stuck(experts.size(), 0);
    std::vector<char> full(static_cast<std::size_t>(ranks_), 0);
    for (const std::int32_t i : cut.experts) {
      stuck[static_cast<std::size_t>(i)] = 1;
    }
    for (const std::int32_t r : cut.ranks) {
      full[static_cast<std::size_t>(r)] = 1;
    }
    std::vector<std::int32_t> inside, outside;
    Instances inside_ranks, outside_ranks;
    for (std::size_t i = 0; i < experts.size(); ++i) {
      (stuck[i] ? inside : outside).push_back(experts[i]);
      if (stuck[i]) {
        inside_ranks.push_back(instances[i]);
      } else {
        auto& there = outside_ranks.emplace_back();
        std::copy_if(instances[i].begin(), instances[i].end(), std::back_inserter(there),
                     [&](std::int32_t r) { return !full[static_cast<std::size_t>(r)]; });
      }
    }
    const std::int64_t budget = capacity_ * static_cast<std::int64_t>(cut.ranks.size());
    part(inside, inside_ranks, budget);
    part(outside, outside_ranks, target - budget);
  }

  std::vector<Lot> lots_;
  int ranks_;
  std::int64_t capacity_ = 0;
  std::vector<std::int64_t> quota_;
};

std::vector<Lot> lots_of_experts(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                                 const QuotaSettings& settings) {
  std::vector<Lot> lots;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    lots.push_back(make_lot(curves, static_cast<int>(e), pairs[e], settings));
  }
  return lots;
}

}  // namespace

ExpertQuotas quota_of_experts(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                              const Instances& instances, int ranks,
                              const QuotaSettings& settings) {
  const std::int64_t target = sum(pairs) * settings.ratio;
  const std::int64_t asked = asked_capacity(target, ranks, settings);
  Decomposition decomposition(lots_of_experts(curves, pairs, settings), ranks);
  ExpertQuotas result;
  result.capacity = decomposition.least_capacity(instances, target, asked);
  result.raised = result.capacity > asked;
  result.quota = decomposition.solve(instances, target, result.capacity);
  return result;
}

std::vector<std::int64_t> quota_without_ranks(const ScoreCurves* curves,
                                              std::span<const std::int64_t> pairs,
                                              const QuotaSettings& settings) {
  return buy(lots_of_experts(curves, pairs, settings), sum(pairs) * settings.ratio);
}

std::int64_t ratio_for_variance(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                                double variance) {
  double squares = 0.0;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    squares += static_cast<double>(pairs[e]) * curve_of(curves, static_cast<int>(e)).square();
  }
  const double tau = largest_tau([&](double t) {
    double added = 0.0;
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      added +=
          static_cast<double>(pairs[e]) * curve_of(curves, static_cast<int>(e)).added_variance(t);
    }
    return t == 0.0 || added > variance * squares;  // still too dear
  });
  double kept = 0.0;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    kept += static_cast<double>(pairs[e]) * curve_of(curves, static_cast<int>(e)).share(tau);
  }
  const auto all = static_cast<double>(sum(pairs));
  return all == 0.0 ? kOne : std::clamp(to_fixed(kept / all) + 1, std::int64_t{1}, kOne);
}

double predicted_variance(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                          std::span<const std::int64_t> quota, int ranks_per_expert) {
  double added = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] > 0) {
      const Curve& curve =
          curve_of(curves, static_cast<int>(i / static_cast<std::size_t>(ranks_per_expert)));
      const auto count = static_cast<double>(pairs[i]);
      const auto kept = static_cast<double>(std::max<std::int64_t>(quota[i], 1));
      const double tau = curve.tau(kept / (count * static_cast<double>(kOne)));
      added += count * curve.added_variance(tau);
      squares += count * curve.square();
    }
  }
  return squares > 0.0 ? added / squares : 0.0;
}

}  // namespace lrmoe::plan
