#include "lrmoe/plan/budget.h"

#include <algorithm>
#include <limits>
#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"

namespace lrmoe::plan {
namespace {

constexpr double kLeastRatio = 0.01;

/// Tries plans in turn and remembers the one that needs least.
class Search {
 public:
  explicit Search(const MemoryBudget& budget) : budget_(budget) {}

  bool fits(const Plan& plan, Activations activations, int chunks) {
    budget_.model.activations = activations;
    budget_.model.chunks = chunks;
    const Fullest now = fullest_rank(plan, budget_);
    if (now.bytes < least_.bytes) {
      least_ = now;
    }
    return now.bytes <= budget_.bytes;
  }
  /// The plan as it runs, with its memory.
  Plan done(Plan plan, Activations activations, int chunks, const std::string& given_up) const {
    MemoryModel model = budget_.model;
    model.activations = activations;
    model.chunks = chunks;
    plan.activations = activations;
    plan.chunks = chunks;
    plan.memory = memory_terms(plan, model);
    if (!given_up.empty()) {
      plan.notes.push_back("to fit the memory budget of " + print_size(budget_.bytes) + ": " +
                           given_up);
    }
    return plan;
  }
  [[noreturn]] void fail() const {
    const MemoryTerms& t = least_.terms;
    throw InputError("[memory] budget = " + print_size(budget_.bytes) + " is not enough for rank " +
                     std::to_string(least_.rank) + ", which needs weights " +
                     print_size(t.weights) + ", gradients " + print_size(t.gradients) +
                     ", activations " + print_size(t.activations) + " (" +
                     std::to_string(budget_.layers) + " layers), buffers " + print_size(t.buffers) +
                     " and workspace " + print_size(t.workspace) +
                     " with everything given up that can be; the smallest budget " +
                     "that would do: " + std::to_string(least_.bytes));
  }

 private:
  MemoryBudget budget_;
  Fullest least_{0, std::numeric_limits<std::int64_t>::max(), {}};
};

}  // namespace

MemoryTerms budgeted_terms(const MemoryTerms& terms, std::int64_t kept, int layers) {
  MemoryTerms all = terms;
  all.weights *= layers;
  all.gradients *= layers;
  all.activations = layers * kept + std::max<std::int64_t>(terms.activations - kept, 0);
  return all;
}

Fullest fullest_rank(const Plan& plan, const MemoryBudget& budget) {
  const std::vector<MemoryTerms> terms = memory_terms(plan, budget.model);
  const std::vector<std::int64_t> kept = kept_bytes(plan, budget.model);
  Fullest most;
  for (std::size_t r = 0; r < terms.size(); ++r) {
    const MemoryTerms all = budgeted_terms(terms[r], kept[r], budget.layers);
    if (all.total() > most.bytes) {
      most = {static_cast<int>(r), all.total(), all};
    }
  }
  return most;
}

Plan plan_within(const MemoryBudget& budget, const LrmoeOptions& options,
                 const std::function<Plan(const LrmoeOptions&)>& replan) {
  Search search(budget);
  LrmoeOptions now = options;
  Plan plan = replan(now);
  if (search.fits(plan, *now.activations, 1)) {
    return search.done(std::move(plan), *now.activations, 1, "");
  }
  std::string given_up;
  if (now.activations != Activations::recompute) {
    now.activations = Activations::recompute;
    given_up = "activations are computed again";
    plan = replan(now);
    if (search.fits(plan, *now.activations, 1)) {
      return search.done(std::move(plan), *now.activations, 1, given_up);
    }
    given_up += ", ";
  }
  int chunks = 1;
  while (chunks < budget.most_chunks) {
    chunks = std::min(2 * chunks, budget.most_chunks);
    if (search.fits(plan, *now.activations, chunks)) {
      return search.done(std::move(plan), *now.activations, chunks,
                         given_up + std::to_string(chunks) + " chunks");
    }
  }
  given_up += std::to_string(chunks) + " chunks, a ratio of ";
  // The largest ratio that fits, by halving; a ceiling on variance or time no longer counts.
  now.variance = 0.0;
  now.time = 0.0;
  now.variance_limit = 0.0;
  double high = plan.keep_all ? 1.0 : options.ratio;
  double low = std::min(kLeastRatio, high);
  now.ratio = low;
  Plan best = replan(now);
  if (!search.fits(best, *now.activations, chunks)) {
    search.fail();
  }
  for (int i = 0; i < 6; ++i) {
    now.ratio = (low + high) / 2;
    Plan other = replan(now);
    if (search.fits(other, *now.activations, chunks)) {
      low = now.ratio;
      best = std::move(other);
    } else {
      high = now.ratio;
    }
  }
  return search.done(std::move(best), *now.activations, chunks, given_up + print_number(low));
}

int affordable_slots(const MemoryBudget& budget, const Cluster& cluster,
                     const std::function<std::int64_t(int slots)>& bytes_with) {
  const int least = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
  int slots = cluster.slots;
  while (slots > least && bytes_with(slots) > budget.bytes) {
    --slots;
  }
  return slots;
}

}  // namespace lrmoe::plan
