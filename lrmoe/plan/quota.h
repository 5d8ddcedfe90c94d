// Pass "quota": how many pairs of each expert the backward pass keeps, in fixed
// point (2^-kQuotaBits pairs), so that sampling adds least variance.
//
// With one price 1/tau for all experts every pair is kept with probability
// min(1, tau s), which is the least variance for the sum (Neyman). Where a rank
// would retain more than its capacity, what only full ranks can compute is bought
// at a higher price.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/balance.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/price.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {

struct QuotaSettings {
  std::int64_t ratio = 0;  // fixed point, in (0, 1]
  std::int64_t floor = 0;  // fixed point, least share of a lot; the ratio where that is less
  std::int64_t slack = 0;  // fixed point: a rank retains <= (1 + slack) * mean
};

/// The quotas of a plan, and the arrays that the search for them reuses.
struct Quotas {
  std::vector<std::int64_t> quota;  // fixed point, ratio * pairs in sum
  std::int64_t capacity = 0;        // of a rank, fixed point
  bool raised = false;              // the ratio could not be met within the slack
  double added_variance = 0.0;      // relative to the sum of s^2

  Lots lots;
  Purchase purchase;
  Buyer buyer;
  std::vector<std::int64_t> full, loads;
};

/// One price and no ranks: `quota` [E]. `capacity` is what a rank of `ranks` may keep by
/// the slack; nothing is held to it.
void quota_without_ranks(const PriceTable& prices, std::span<const std::int64_t> pairs, int ranks,
                         const QuotaSettings& settings, Quotas& out);

/// Activation mode keep: quotas of the instances [I], whose pairs stand where the
/// forward split's `loads` [I] brought them; a price per rank where that is full.
void quota_of_instances(const PriceTable& prices, const InstanceIndex& index,
                        std::span<const std::int64_t> loads, const QuotaSettings& settings,
                        Quotas& out);

/// Activation mode recompute: quotas of the experts [E], whose pairs may be computed
/// at any of their instances: bought at the price of the cheapest of their ranks. The
/// optimum over all splits, by decomposition: where the one-price answer does not
/// flow, the minimum cut's experts get exactly what their ranks can take, the
/// others the rest, and both parts are solved by themselves.
void quota_of_experts(const PriceTable& prices, std::span<const std::int64_t> pairs,
                      const InstanceIndex& index, Balancer& balancer, const QuotaSettings& settings,
                      Quotas& out);

/// The same on plain tables, for looking at placements rather than for speed. Only
/// the places with load count as instances.
struct RankQuotas {
  Loads quota;  // [E, R]
  std::int64_t capacity = 0;
  bool raised = false;
};
RankQuotas quota_at_ranks(const ScoreCurves* curves, const Loads& loads,
                          const QuotaSettings& settings);
Quotas quota_of_experts(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                        const Instances& instances, int ranks, const QuotaSettings& settings);

/// One price and no ranks: what the placement is planned for.
std::vector<std::int64_t> quota_without_ranks(const ScoreCurves* curves,
                                              std::span<const std::int64_t> pairs,
                                              const QuotaSettings& settings);

/// The table of `curves`; without them `flat`, made to fit.
const PriceTable& prices_of(const ScoreCurves* curves, int experts, PriceTable& flat);

/// The smallest ratio (fixed point) at which the one-price answer adds at most
/// `variance`, relative to the sum of s^2.
std::int64_t ratio_for_variance(const PriceTable& prices, std::span<const std::int64_t> pairs,
                                double variance);

/// Added variance of any quotas (not only those of one price) relative to the sum of s^2; entry i
/// of both spans belongs to expert i / ranks_per_expert. `pairs` in pairs, `quota` in fixed point.
double predicted_variance(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                          std::span<const std::int64_t> quota, int ranks_per_expert);

}  // namespace lrmoe::plan
