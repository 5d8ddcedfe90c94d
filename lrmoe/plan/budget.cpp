#include "lrmoe/plan/budget.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

constexpr double kLeastRatio = 0.01;

/// "8 of 10 slots a rank" where an instance more would not fit; "" where slots are left
/// empty for another reason.
std::string slots_given_up(const Plan& plan, const MemoryBudget& budget) {
  const int used = most_used_slots(plan.placement);
  const int all = std::min(plan.cluster.slots, plan.cluster.experts);
  const MemoryModel& m = budget.model;
  const std::int64_t instance = 2 * budget.layers * 3 * m.hidden * m.width * m.weight_bytes;
  if (used >= all || fullest_rank(plan, budget).bytes + instance <= budget.bytes) {
    return "";
  }
  return std::to_string(used) + " of " + std::to_string(plan.cluster.slots) + " slots a rank";
}

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
  Plan done(Plan plan, Activations activations, int chunks,
            std::vector<std::string> given_up) const {
    MemoryBudget budget = budget_;
    budget.model.activations = activations;
    budget.model.chunks = chunks;
    plan.activations = activations;
    plan.chunks = chunks;
    plan.memory = memory_terms(plan, budget.model);
    const std::string slots = slots_given_up(plan, budget);
    if (!slots.empty()) {
      given_up.insert(given_up.begin(), slots);
    }
    if (!given_up.empty()) {
      plan.notes.push_back("to fit the memory budget of " + print_size(budget_.bytes) + ": " +
                           join(given_up));
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
  int chunks = std::max(budget.chunks, 1);
  if (search.fits(plan, *now.activations, chunks)) {
    return search.done(std::move(plan), *now.activations, chunks, {});
  }
  std::vector<std::string> given_up;
  if (now.activations != Activations::recompute) {
    now.activations = Activations::recompute;
    given_up.emplace_back("activations are computed again");
    plan = replan(now);
    if (search.fits(plan, *now.activations, chunks)) {
      return search.done(std::move(plan), *now.activations, chunks, given_up);
    }
  }
  const bool more_chunks = chunks < budget.most_chunks;
  while (chunks < budget.most_chunks) {
    chunks = std::min(2 * chunks, budget.most_chunks);
    if (search.fits(plan, *now.activations, chunks)) {
      given_up.push_back(std::to_string(chunks) + " chunks");
      return search.done(std::move(plan), *now.activations, chunks, given_up);
    }
  }
  if (more_chunks) {
    given_up.push_back(std::to_string(chunks) + " chunks");
  }
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
  given_up.push_back("a ratio of " + print_number(low));
  return search.done(std::move(best), *now.activations, chunks, given_up);
}

Placement affordable_placement(const MemoryBudget& budget, const Cluster& cluster, Activations set,
                               const std::function<Plan(int slots, Activations)>& plan_with) {
  const int least = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
  std::map<std::pair<Activations, int>, Plan> plans;
  const auto plan_of = [&](Activations activations, int slots) -> const Plan& {
    const auto key = std::pair(activations, slots);
    const auto found = plans.find(key);
    return found != plans.end() ? found->second
                                : plans.emplace(key, plan_with(slots, activations)).first->second;
  };
  MemoryBudget now = budget;
  now.model.activations = set;
  now.model.chunks = std::max(budget.chunks, 1);
  const auto fits = [&](int slots) {
    return fullest_rank(plan_of(now.model.activations, slots), now).bytes <= budget.bytes;
  };
  while (true) {
    // All of them: fewer weights are less, but the fullest rank's load is more.
    for (int slots = cluster.slots; slots >= least; --slots) {
      if (fits(slots)) {
        return plan_of(now.model.activations, slots).placement;
      }
    }
    if (now.model.activations != Activations::recompute) {
      now.model.activations = Activations::recompute;
    } else if (now.model.chunks < budget.most_chunks) {
      now.model.chunks = std::min(2 * now.model.chunks, budget.most_chunks);
    } else {
      return plan_of(now.model.activations, least).placement;
    }
  }
}

}  // namespace lrmoe::plan
