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

#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/flow.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {

/// Pairs with one score curve that are bought together. Fixed point.
struct Lot {
  const Curve* curve = nullptr;
  std::int64_t demand = 0;
  std::int64_t floor = 0;  // <= demand
};

/// What the price 1/tau buys of a lot: floor <= q <= demand, grows with tau.
std::int64_t bought(const Lot& lot, double tau);

/// One price for all lots; exactly `target` in sum (sum of floors <= target <= sum
/// of demands).
std::vector<std::int64_t> buy(std::span<const Lot> lots, std::int64_t target);

struct QuotaSettings {
  std::int64_t ratio = 0;  // fixed point, in (0, 1]
  std::int64_t floor = 0;  // fixed point, least share of a lot; the ratio where that is less
  std::int64_t slack = 0;  // fixed point: a rank retains <= (1 + slack) * mean
};

struct RankQuotas {
  Loads quota;                // [E, R] fixed point, ratio * pairs in sum
  std::int64_t capacity = 0;  // of a rank, fixed point
  bool raised = false;        // the ratio could not be met within the slack
};

/// Activation mode keep: the pairs stand where the forward split `loads` [E, R]
/// brought them, one price per rank.
RankQuotas quota_at_ranks(const ScoreCurves* curves, const Loads& loads,
                          const QuotaSettings& settings);

struct ExpertQuotas {
  std::vector<std::int64_t> quota;  // [E] fixed point
  std::int64_t capacity = 0;
  bool raised = false;
};

/// Activation mode recompute: an expert's pairs may be computed at any of its
/// instances; it is bought at the price of the cheapest of their ranks. The
/// optimum over all splits, by decomposition: where the one-price answer does not
/// flow, the minimum cut's experts get exactly what their ranks can take, the
/// others the rest, and both parts are solved by themselves.
ExpertQuotas quota_of_experts(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                              const Instances& instances, int ranks, const QuotaSettings& settings);

/// One price and no ranks: what the placement is planned for.
std::vector<std::int64_t> quota_without_ranks(const ScoreCurves* curves,
                                              std::span<const std::int64_t> pairs,
                                              const QuotaSettings& settings);

/// The smallest ratio (fixed point) at which the one-price answer adds at most
/// `variance`, relative to the sum of s^2.
std::int64_t ratio_for_variance(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                                double variance);

/// Added variance relative to the sum of s^2; entry i of both spans belongs to
/// expert i / ranks_per_expert. `pairs` in pairs, `quota` in fixed point.
double predicted_variance(const ScoreCurves* curves, std::span<const std::int64_t> pairs,
                          std::span<const std::int64_t> quota, int ranks_per_expert);

}  // namespace lrmoe::plan
