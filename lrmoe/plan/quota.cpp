#include "lrmoe/plan/quota.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

std::int64_t sum(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

/// Fixed point, of each pair: the least that is kept of it.
std::int64_t floor_of(const QuotaSettings& settings) {
  return std::min(settings.floor, settings.ratio);
}

void lots_of_experts(std::span<const std::int64_t> pairs, const QuotaSettings& settings,
                     Lots& lots) {
  lots.clear();
  lots.resize(pairs.size());
  const std::int64_t floor = floor_of(settings);
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    lots.set(e, static_cast<std::int32_t>(e), pairs[e] * kOne, pairs[e] * floor);
  }
  lots.end_group();
}

/// Capacity of a rank as the slack asks for it.
std::int64_t asked_capacity(std::int64_t target, int ranks, const QuotaSettings& settings) {
  const std::int64_t mean = (target + ranks - 1) / ranks;
  return mean + mul_div(mean, settings.slack, kOne);
}

/// The least capacity >= `least` with sum_r min(full[r], capacity) >= target.
std::int64_t water_level(std::vector<std::int64_t>& full, std::int64_t target, std::int64_t least) {
  std::int64_t there = 0;
  for (const std::int64_t f : full) {
    there += std::min(f, least);
  }
  if (there >= target) {
    return least;
  }
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

/// The decomposition behind quota_of_experts, where one price does not flow.
class Decomposition {
 public:
  Decomposition(const PriceTable& prices, const Lots& lots, int ranks, Balancer& balancer)
      : prices_(prices), lots_(lots), ranks_(ranks), balancer_(balancer) {}

  /// The least capacity, at least `asked`, at which floors and target flow.
  std::int64_t least_capacity(const InstanceIndex& index, std::int64_t target, std::int64_t asked) {
    const std::int64_t capacity = raise(index, lots_.floor, sum(lots_.floor), asked);
    return raise(index, lots_.demand, target, capacity);
  }

  void solve(const Instances& instances, std::int64_t target, std::int64_t capacity,
             Purchase& out) {
    capacity_ = capacity;
    out_ = &out;
    std::vector<std::int32_t> all(lots_.size());
    std::iota(all.begin(), all.end(), 0);
    part(all, instances, target);
  }

 private:
  std::int64_t raise(const InstanceIndex& index, std::span<const std::int64_t> supply,
                     std::int64_t target, std::int64_t capacity) {
    const std::int64_t all = sum(supply);
    loads_.resize(static_cast<std::size_t>(index.size()));
    for (;;) {
      const std::int64_t value = all - balancer_.fill(index, supply, capacity, loads_);
      if (value >= target) {
        return capacity;
      }
      balancer_.cut(stuck_, full_);
      const auto full = static_cast<std::int64_t>(std::count(full_.begin(), full_.end(), 1));
      capacity += (target - value + full - 1) / full;
    }
  }

  /// `experts` share `target`; `instances[i]` are the ranks left to experts[i].
  void part(const std::vector<std::int32_t>& experts, const Instances& instances,
            std::int64_t target) {
    Lots lots;
    for (const std::int32_t e : experts) {
      const auto i = static_cast<std::size_t>(e);
      lots.add(e, lots_.demand[i], lots_.floor[i]);
    }
    lots.end_group();
    Purchase bought;
    buyer_.buy(prices_, lots, target, Buyer::kNoCapacity, bought);
    InstanceIndex index;
    index.build(instances, ranks_);
    loads_.resize(static_cast<std::size_t>(index.size()));
    if (balancer_.fill(index, bought.quota, capacity_, loads_) == 0) {
      for (std::size_t i = 0; i < experts.size(); ++i) {
        const auto e = static_cast<std::size_t>(experts[i]);
        out_->quota[e] = bought.quota[i];
        out_->tau[e] = bought.tau[i];
        out_->row[e] = bought.row[i];
      }
      return;
    }
    balancer_.cut(stuck_, full_);
    const std::int64_t budget = capacity_ * std::count(full_.begin(), full_.end(), 1);
    // Inside: experts that stand on full ranks only, in the cut or not.
    std::vector<std::int32_t> inside, outside;
    Instances inside_ranks, outside_ranks;
    for (std::size_t i = 0; i < experts.size(); ++i) {
      std::vector<std::int32_t> there;
      std::copy_if(instances[i].begin(), instances[i].end(), std::back_inserter(there),
                   [&](std::int32_t r) { return full_[static_cast<std::size_t>(r)] == 0; });
      if (there.empty()) {
        inside.push_back(experts[i]);
        inside_ranks.push_back(instances[i]);
      } else {
        outside.push_back(experts[i]);
        outside_ranks.push_back(std::move(there));
      }
    }
    part(inside, inside_ranks, budget);
    part(outside, outside_ranks, target - budget);
  }

  const PriceTable& prices_;
  const Lots& lots_;
  int ranks_;
  Balancer& balancer_;
  Buyer buyer_;
  std::int64_t capacity_ = 0;
  Purchase* out_ = nullptr;
  std::vector<std::int64_t> loads_;
  std::vector<char> stuck_, full_;
};

}  // namespace

void quota_without_ranks(const PriceTable& prices, std::span<const std::int64_t> pairs, int ranks,
                         const QuotaSettings& settings, Quotas& out) {
  const std::int64_t target = sum(pairs) * settings.ratio;
  out.capacity = asked_capacity(target, ranks, settings);
  lots_of_experts(pairs, settings, out.lots);
  out.buyer.buy(prices, out.lots, target, Buyer::kNoCapacity, out.purchase);
  out.quota.assign(out.purchase.quota.begin(), out.purchase.quota.end());
}

void quota_of_instances(const PriceTable& prices, const InstanceIndex& index,
                        std::span<const std::int64_t> loads, const QuotaSettings& settings,
                        Quotas& out) {
  out.lots.clear();
  out.lots.resize(loads.size());
  out.full.clear();
  const std::int64_t floor = floor_of(settings);
  std::int64_t floors = 0;
  std::size_t lot = 0;
  for (int r = 0; r < index.ranks; ++r) {
    std::int64_t pairs = 0;
    for (const std::int32_t i : index.on_rank(r)) {
      const auto instance = static_cast<std::size_t>(i);
      const std::int64_t here = loads[instance];
      out.lots.set(lot++, index.expert[instance], here * kOne, here * floor);
      pairs += here;
    }
    out.lots.group_begin.push_back(static_cast<std::int32_t>(lot));
    out.full.push_back(pairs * kOne);
    floors = std::max(floors, pairs * floor);
  }
  const std::int64_t target = sum(loads) * settings.ratio;
  const std::int64_t asked = asked_capacity(target, index.ranks, settings);
  // Floors are at most the ratio, so what they force is below the largest scaled load.
  out.capacity = std::max(water_level(out.full, target, asked), floors);
  out.raised = out.capacity > asked;
  out.buyer.buy(prices, out.lots, target, out.capacity, out.purchase);
  out.added_variance = variance_of(prices, out.lots, out.purchase).relative();
  out.quota.resize(loads.size());
  for (std::size_t i = 0; i < out.quota.size(); ++i) {
    out.quota[static_cast<std::size_t>(index.of_rank[i])] = out.purchase.quota[i];
  }
}

void quota_of_experts(const PriceTable& prices, std::span<const std::int64_t> pairs,
                      const InstanceIndex& index, Balancer& balancer, const QuotaSettings& settings,
                      Quotas& out) {
  const std::int64_t target = sum(pairs) * settings.ratio;
  const std::int64_t asked = asked_capacity(target, index.ranks, settings);
  lots_of_experts(pairs, settings, out.lots);
  out.capacity = asked;
  out.buyer.buy(prices, out.lots, target, Buyer::kNoCapacity, out.purchase);
  out.loads.resize(static_cast<std::size_t>(index.size()));
  if (balancer.fill(index, out.purchase.quota, asked, out.loads) > 0) {
    Instances instances(pairs.size());
    for (std::size_t i = 0; i < index.rank.size(); ++i) {
      instances[static_cast<std::size_t>(index.expert[i])].push_back(index.rank[i]);
    }
    Decomposition decomposition(prices, out.lots, index.ranks, balancer);
    out.capacity = decomposition.least_capacity(index, target, asked);
    decomposition.solve(instances, target, out.capacity, out.purchase);
  }
  out.raised = out.capacity > asked;
  out.added_variance = variance_of(prices, out.lots, out.purchase).relative();
  out.quota.assign(out.purchase.quota.begin(), out.purchase.quota.end());
}

RankQuotas quota_at_ranks(const ScoreCurves* curves, const Loads& loads,
                          const QuotaSettings& settings) {
  Instances instances(static_cast<std::size_t>(loads.rows));
  std::vector<std::int64_t> of_instances;
  for (int e = 0; e < loads.rows; ++e) {
    for (int r = 0; r < loads.cols; ++r) {
      if (loads.at(e, r) > 0) {
        instances[static_cast<std::size_t>(e)].push_back(r);
        of_instances.push_back(loads.at(e, r));
      }
    }
  }
  InstanceIndex index;
  index.build(instances, loads.cols);
  PriceTable flat(1);
  Quotas quotas;
  quota_of_instances(prices_of(curves, loads.rows, flat), index, of_instances, settings, quotas);
  RankQuotas out{Loads(loads.rows, loads.cols), quotas.capacity, quotas.raised};
  for (std::size_t i = 0; i < of_instances.size(); ++i) {
    out.quota.at(index.expert[i], index.rank[i]) = quotas.quota[i];
  }
  return out;
}

Quotas quota_of_experts(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                        const Instances& instances, int ranks, const QuotaSettings& settings) {
  InstanceIndex index;
  index.build(instances, ranks);
  PriceTable flat(1);
  Balancer balancer;
  Quotas quotas;
  quota_of_experts(prices_of(curves, index.experts, flat), pairs, index, balancer, settings,
                   quotas);
  return quotas;
}

const PriceTable& prices_of(const ScoreCurves* curves, int experts, PriceTable& flat) {
  if (curves != nullptr) {
    return curves->prices();
  }
  if (flat.experts() != experts) {
    flat = PriceTable(experts);
  }
  return flat;
}

std::vector<std::int64_t> quota_without_ranks(const ScoreCurves* curves,
                                              std::span<const std::int64_t> pairs,
                                              const QuotaSettings& settings) {
  PriceTable flat(static_cast<int>(pairs.size()));
  Quotas quotas;
  quota_without_ranks(prices_of(curves, flat.experts(), flat), pairs, 1, settings, quotas);
  return quotas.quota;
}

std::int64_t ratio_for_variance(const PriceTable& prices, std::span<const std::int64_t> pairs,
                                double variance) {
  double allowed = 0.0;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    allowed += variance * static_cast<double>(pairs[e]) * prices.squares(prices.last())[e];
  }
  // What a row's prices add: scores / tau - squares, of all pairs.
  const auto scores = [&](int row) {
    double all = 0.0;
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      all += row == 0 ? 0.0
                      : static_cast<double>(pairs[e]) *
                            std::max(0.0, prices.partial(row)[e] - prices.zero()[e]);
    }
    return all;
  };
  const auto squares = [&](int row) {
    double all = 0.0;
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      all += static_cast<double>(pairs[e]) * prices.squares(row)[e];
    }
    return all;
  };
  // The first row whose least tau adds too much, or the last; it holds the answer.
  int low = 0;
  int high = prices.last();
  while (low < high) {
    const int row = (low + high) / 2;
    if (scores(row) > (allowed + squares(row)) * prices.knot(row)) {
      high = row;
    } else {
      low = row + 1;
    }
  }
  const double tau = scores(low) / (allowed + squares(low));
  double kept = 0.0;
  for (std::size_t e = 0; e < pairs.size(); ++e) {
    kept += static_cast<double>(pairs[e]) *
            std::min(1.0, tau * prices.partial(low)[e] + prices.whole(low)[e]);
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
