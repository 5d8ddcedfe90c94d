#include "lrmoe/replay/memory.h"

#include <algorithm>
#include <cmath>

namespace lrmoe::replay {
namespace {

std::int64_t times(std::int64_t bytes, double factor) {
  return std::llround(static_cast<double>(bytes) * factor);
}

}  // namespace

plan::MemoryModel memory_model(const plan::StrategyOptions& options, const cost::Shape& shape,
                               double scale) {
  plan::MemoryModel model;
  model.hidden = shape.hidden;
  model.width = shape.width;
  model.weight_bytes = shape.element_bytes;
  model.activation_bytes = shape.element_bytes;
  model.scale = scale;
  if (plan::make_strategy({.name = options.name})->selection() != nullptr) {
    plan::set_scores(model, options.lrmoe);
  }
  return model;
}

LayerMemory memory_of(const plan::Plan& plan, plan::MemoryModel model) {
  model.activations = plan.activations;
  model.chunks = plan.chunks;
  return {plan::memory_terms(plan, model), plan::kept_bytes(plan, model)};
}

void LayersInFlight::add(const LayerMemory& layer) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const plan::MemoryTerms& terms = layer.terms[r];
    rank.weights += terms.weights;
    rank.gradients += terms.gradients;
    rank.kept += layer.kept[r];
    plan::MemoryTerms passing = terms;
    passing.weights = passing.gradients = 0;
    passing.activations = std::max<std::int64_t>(terms.activations - layer.kept[r], 0);
    if (passing.total() > rank.passing.total()) {
      rank.passing = passing;
    }
  }
}

std::vector<plan::MemoryTerms> LayersInFlight::terms(double factor) const {
  std::vector<plan::MemoryTerms> out;
  for (const Rank& rank : ranks_) {
    plan::MemoryTerms terms = rank.passing;
    terms.weights = times(rank.weights, factor);
    terms.gradients = times(rank.gradients, factor);
    terms.activations += times(rank.kept, factor);
    out.push_back(terms);
  }
  return out;
}

int slots_for(const plan::Strategy& strategy, int ranks, int wanted, int experts) {
  const int least = (experts + ranks - 1) / ranks;
  if (strategy.owns_experts()) {
    return least;
  }
  const int slots = wanted > 0 ? wanted : least + 2;
  // An expert has at most one instance per rank, but for symi's placements.
  return strategy.name().starts_with("symi") ? slots : std::min(slots, experts);
}

}  // namespace lrmoe::replay
