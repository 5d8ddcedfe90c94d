// One rank's part of a plan: what the layer needs to run it, without the other
// ranks' routes among themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

struct RouteInput;
struct RouteScratch;

struct RankPlan {
  int rank = 0;
  Cluster cluster;
  Split sends, receives;            // forward routes from this rank, and to it
  Split kept_sends, kept_receives;  // backward
  bool keep_all = true;             // these and the next as in Plan
  bool score = false;
  bool listed = false;
  Activations activations = Activations::keep;
  int chunks = 1;
  std::vector<Cell> cells;  // of this source
  std::int64_t draw = 0;
  double added_variance = 0.0;
  std::vector<std::string> notes;
  // Of all ranks.
  std::int64_t routed = 0, dropped = 0, retained = 0;       // pairs
  std::vector<std::int64_t> forward_loads, backward_loads;  // [R] pairs
  std::vector<std::int64_t> expert_pairs;                   // [E] the demand
  bool operator==(const RankPlan&) const = default;
};

/// By picking from the whole plan.
RankPlan part_of(const Plan& plan, int rank);

/// From the outline of `scratch`, in closed form: the same, but for what it costs.
/// Not for a shortlist in activation mode keep (a route's listed pairs depend on
/// the source's other routes).
RankPlan part_of_outline(const RouteInput& input, int rank, RouteScratch& scratch);

}  // namespace lrmoe::plan
