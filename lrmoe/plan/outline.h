// What all ranks find alike from a step's demand: loads, quotas, the line. Every
// rank's routes and cells follow from it (rank_plan.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrmoe/plan/balance.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/exchange.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/instances.h"
#include "lrmoe/plan/lines.h"
#include "lrmoe/plan/locality.h"
#include "lrmoe/plan/options.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// Instances [I] and experts [E] are numbered as in `index`.
struct Outline {
  InstanceIndex index;
  Prefixes demand;                    // of RouteInput::demand
  std::vector<std::int64_t> forward;  // [I] pairs computed
  bool keep_all = true;
  bool score = false;
  bool by_instance = false;            // cells per forward instance (activation mode keep)
  Prefixes listed;                     // of RouteInput::listed, where cells hold those only
  std::vector<std::int64_t> quota;     // fixed point, by instance or by expert
  std::vector<std::int64_t> begin;     // where its stretch of the line begins
  std::vector<std::int64_t> backward;  // [I] pairs kept; as `forward` when keep_all
  double added_variance = 0.0;
  std::vector<std::string> notes;

  void clear();
};

/// Reused from plan to plan; nothing in it changes a plan.
struct RouteScratch {
  Outline outline;
  Balancer balancer;
  Localizer localizer;
  Exchange exchange;
  Quotas quotas;
  PriceTable flat{1};
  std::vector<std::int64_t> local, kept_local;  // [I] pairs, kept pairs on the instance's rank
  std::vector<std::int64_t> node_pairs, kept;
};

/// The index, the prefixes (before `rank`; -1: none) and the min-max forward split.
void outline_forward(const RouteInput& input, int rank, RouteScratch& scratch);

/// The quota and the backward split, from index, prefixes and `forward`. All is kept
/// where the ratio is 1 or there are no pairs, and where the guard
/// (LrmoeOptions::variance_limit) finds the price too high. `listed_loads` [I]: of
/// `forward` the listed pairs, needed in activation mode keep with a shortlist.
void outline_backward(const RouteInput& input, const LrmoeOptions& options, int rank,
                      std::span<const std::int64_t> listed_loads, RouteScratch& scratch);

/// How many of the first `before` pairs of expert e (in order of source) are kept,
/// where the line goes by experts.
inline std::int64_t kept_before(const Outline& outline, std::int64_t draw, std::size_t e,
                                std::int64_t before, std::int64_t all) {
  const std::int64_t end = outline.begin[e] + mul_div(outline.quota[e], before, all);
  return points_between(outline.begin[e], end, draw);
}

}  // namespace lrmoe::plan
