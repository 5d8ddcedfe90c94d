#include "lrmoe/replay/estimate.h"

#include <algorithm>
#include <cmath>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/budget.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/memory.h"

namespace lrmoe::replay {
namespace {

/// What stays whatever the tokens.
std::int64_t standing(const plan::MemoryTerms& terms) {
  return terms.weights + terms.gradients;
}

std::vector<plan::MemoryTerms> in_flight(const plan::Plan& plan, const EstimateOptions& options) {
  LayersInFlight layers(options.ranks);
  layers.add(memory_of(plan, memory_model(options.strategy, options.shape, 1)));
  return layers.terms(options.layers_in_flight);
}

std::int64_t fullest_total(const std::vector<plan::MemoryTerms>& ranks) {
  return plan::fullest(ranks).total();
}

/// Tokens of a step whose every rank stays within the budget: what tokens take grows in
/// proportion with them. A multiple of the ranks.
std::int64_t most_tokens(const std::vector<plan::MemoryTerms>& ranks, std::int64_t tokens,
                         std::int64_t budget) {
  double least = static_cast<double>(std::int64_t{1} << 50);
  for (const plan::MemoryTerms& terms : ranks) {
    const std::int64_t room = budget - standing(terms);
    if (room <= 0) {
      return 0;
    }
    const std::int64_t used = terms.total() - standing(terms);
    if (used > 0) {
      least = std::min(least, static_cast<double>(room) / static_cast<double>(used));
    }
  }
  const auto count = static_cast<std::int64_t>(ranks.size());
  const double most = static_cast<double>(tokens) * least;
  return static_cast<std::int64_t>(std::min(most, 0x1p50)) / count * count;
}

/// The layer of the assumed demand, planned on it.
plan::Plan assumed_plan(const EstimateOptions& options, int slots) {
  const cost::Shape& shape = options.shape;
  const auto strategy = plan::make_strategy(options.strategy);
  const plan::Cluster cluster{options.ranks, shape.experts, slots, shape.top_k, 0};
  plan::check_cluster(cluster);
  const std::int64_t pairs = options.tokens / options.ranks * shape.top_k;
  const std::vector<std::int64_t> loads =
      plan::apportion(pairs, assumed_shares(shape.experts, options.imbalance));
  plan::Counts demand(options.ranks, shape.experts);
  for (int r = 0; r < options.ranks; ++r) {
    std::copy(loads.begin(), loads.end(), demand.row(r).begin());
  }
  const plan::Placement placement =
      strategy->place(cluster, demand, strategy->initial(cluster), nullptr);
  plan::RouteInput input{cluster, demand, placement};
  plan::Counts listed;
  const plan::LrmoeOptions* selection = strategy->selection();
  if (selection != nullptr && selection->shortlist < 1.0 &&
      selection->shortlist_by == plan::ShortlistBy::gate) {
    listed = plan::assumed_shortlist(*selection, demand);
    input.listed = &listed;
  }
  plan::Plan plan = strategy->route(input);
  plan.chunks = std::max(plan.chunks, options.chunks);
  return plan;
}

/// The planner's own pass over the budget, on the assumed demand.
WithinBudget plan_within_budget(const EstimateOptions& options, int slots) {
  WithinBudget out;
  EstimateOptions own = options;
  plan::MemoryBudget& budget = own.strategy.memory;
  budget.bytes = options.budget;
  budget.layers = options.layers_in_flight;
  budget.model = memory_model(options.strategy, options.shape, 1);
  budget.model.activations = plan::activations_of(options.strategy);
  budget.chunks = options.chunks;  // the planner takes more where it must
  try {
    const plan::Plan plan = assumed_plan(own, slots);
    out.slots = plan::most_used_slots(plan.placement);
    out.activations = plan.activations;
    out.chunks = plan.chunks;
    out.kept = plan::total_pairs(plan.quota);
    budget.model.activations = plan.activations;
    budget.model.chunks = plan.chunks;
    const plan::Fullest fullest = plan::fullest_rank(plan, budget);
    out.bytes = fullest.bytes;
    out.terms = fullest.terms;
    out.notes = plan.notes;
  } catch (const InputError& error) {
    out.refused = error.what();
  }
  return out;
}

void check(const EstimateOptions& options) {
  const cost::Shape& shape = options.shape;
  if (options.tokens < options.ranks) {
    throw InputError("--tokens " + std::to_string(options.tokens) + " leaves ranks without one; " +
                     "it takes a step's tokens over all " + std::to_string(options.ranks) +
                     " ranks");
  }
  const std::int64_t pairs = options.tokens / options.ranks * shape.top_k;
  if (pairs > std::int64_t{1} << 30) {
    throw InputError("--tokens " + std::to_string(options.tokens) + " is too much for " +
                     std::to_string(options.ranks) + " ranks; it takes at most " +
                     std::to_string((std::int64_t{1} << 30) / shape.top_k * options.ranks));
  }
  const double most = static_cast<double>(shape.experts) / shape.top_k;
  if (!(options.imbalance >= 1 && options.imbalance <= most)) {
    throw InputError("--imbalance " + print_number(options.imbalance) +
                     " will not do; the fullest of " + std::to_string(shape.experts) +
                     " experts can have 1 to " + print_number(most) +
                     " times the mean when a token chooses " + std::to_string(shape.top_k));
  }
}

}  // namespace

std::vector<std::int64_t> assumed_shares(int experts, double imbalance) {
  constexpr double kUnits = 1 << 20;
  const auto series = [experts](double x) {
    std::vector<double> values;
    for (double v = 1; static_cast<int>(values.size()) < experts; v *= x) {
      values.push_back(v);
    }
    return values;
  };
  const auto uneven = [&](double x) {
    double sum = 0;
    for (const double v : series(x)) {
      sum += v;
    }
    return experts / sum;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (uneven(middle) > imbalance ? low : high) = middle;
  }
  std::vector<std::int64_t> shares;
  for (const double v : series(high)) {
    shares.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(v * kUnits + 0.5), 1));
  }
  return shares;
}

Estimate estimate(const EstimateOptions& given) {
  Estimate out;
  out.options = given;
  EstimateOptions& options = out.options;
  check(options);
  options.layers_in_flight =
      options.layers_in_flight > 0 ? options.layers_in_flight : std::max(options.shape.layers, 1);
  const auto strategy = plan::make_strategy(options.strategy);
  out.slots = slots_for(*strategy, options.ranks, options.slots, options.shape.experts);
  const plan::Plan plan = assumed_plan(options, out.slots);
  out.routed = plan::total_pairs(plan.demand);
  out.kept = plan::total_pairs(plan.quota);
  out.notes = plan.notes;
  out.ranks = in_flight(plan, options);
  const double shard = options.shape.expert_elements() * options.shape.experts / options.ranks;
  out.optimizer = std::llround(12 * shard) * options.layers_in_flight;

  EstimateOptions least = options;
  least.strategy.lrmoe.activations = plan::Activations::recompute;
  least.chunks = std::max(options.chunks, plan::kMostChunks);
  const int least_slots = (options.shape.experts + options.ranks - 1) / options.ranks;
  const auto tight = in_flight(assumed_plan(least, least_slots), least);
  out.smallest_budget = std::min(fullest_total(tight), fullest_total(out.ranks));
  if (options.budget > 0 && options.strategy.name == "lrmoe") {
    out.within = plan_within_budget(options, out.slots);
  }
  if (options.budget > 0) {
    out.most_tokens = most_tokens(out.ranks, options.tokens, options.budget);
    out.smallest_most_tokens =
        std::max(out.most_tokens, most_tokens(tight, options.tokens, options.budget));
  }
  return out;
}

}  // namespace lrmoe::replay
