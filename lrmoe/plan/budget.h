// Pass "memory budget": what a plan gives up so that every rank's bytes fit.
#pragma once

#include <cstdint>
#include <functional>

#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

/// All layers' terms from one layer's and what it keeps between its forward and its
/// backward pass (kept_bytes): weights, gradients and what is kept are there for all
/// layers, the rest of the activations, buffers and workspace for the one that runs.
MemoryTerms budgeted_terms(const MemoryTerms& terms, std::int64_t kept, int layers);

/// The fullest rank, all layers together.
struct Fullest {
  int rank = 0;
  std::int64_t bytes = 0;
  MemoryTerms terms;
};
Fullest fullest_rank(const Plan& plan, const MemoryBudget& budget);

/// `replan` makes the plan with some options. Gives up, in this order and only as
/// far as needed: kept activations (recompute), whole passes (twice the chunks that are
/// set, 4 times, ...), quotas (a smaller ratio). The plan says what in activations,
/// chunks and one note, with the slots that affordable_placement left empty; its memory
/// is filled in.
/// InputError where even the least does not fit; it names the rank, its terms and
/// the smallest budget that would do.
Plan plan_within(const MemoryBudget& budget, const LrmoeOptions& options,
                 const std::function<Plan(const LrmoeOptions&)>& replan);

/// `plan_with` places in so many slots a rank and plans with these activations. The
/// placement in the most slots, cluster.slots or fewer, that fits the budget with the
/// activations that are set; where none does, with recompute; then with the fewest chunks
/// of plan_within that any slots fit with. In ceil(E / R) slots where nothing fits.
Placement affordable_placement(const MemoryBudget& budget, const Cluster& cluster, Activations set,
                               const std::function<Plan(int slots, Activations)>& plan_with);

}  // namespace lrmoe::plan
