// EPLB, DeepSeek's public expert load balancer (global policy): greedy replicas,
// greedy packing, the demand split evenly over the instances. Dropless.
#pragma once

#include <memory>
#include <span>

#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// The algorithm as published: R * S instances, an expert may stand on a rank twice.
Placement eplb_as_published(std::span<const std::int64_t> weights, int ranks, int slots);

/// The strategy keeps an expert's instances on distinct ranks.
std::unique_ptr<const Strategy> make_eplb(const StrategyOptions& options);

}  // namespace lrmoe::plan
