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
/// far as needed: kept activations (recompute), whole passes (2, 4, ... chunks),
/// quotas (a smaller ratio). The plan says what in activations, chunks and notes;
/// its memory is filled in. Replicas are given up before, by affordable_slots.
/// InputError where even the least does not fit; it names the rank, its terms and
/// the smallest budget that would do.
Plan plan_within(const MemoryBudget& budget, const LrmoeOptions& options,
                 const std::function<Plan(const LrmoeOptions&)>& replan);

/// The most slots per rank, cluster.slots or fewer, whose placement `bytes_with`
/// (the fullest rank's budgeted bytes) fits the budget; ceil(E / R) where none does.
int affordable_slots(const MemoryBudget& budget, const Cluster& cluster,
                     const std::function<std::int64_t(int slots)>& bytes_with);

}  // namespace lrmoe::plan
