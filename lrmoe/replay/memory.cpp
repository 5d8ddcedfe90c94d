#include "lrmoe/replay/memory.h"

#include <algorithm>
#include <cmath>

namespace lrmoe::replay {

std::vector<plan::MemoryTerms> memory_of(const plan::Plan& plan, const cost::Shape& shape,
                                         double scale) {
  plan::MemoryModel model;
  model.hidden = shape.hidden;
  model.width = shape.width;
  model.weight_bytes = shape.element_bytes;
  // Every count of tokens and pairs is `scale` times as large.
  model.activation_bytes = std::llround(static_cast<double>(shape.element_bytes) * scale);
  model.gate_bytes = std::llround(4 * scale);
  model.index_bytes = std::llround(8 * scale);
  model.statistic_bytes = model.gate_bytes;
  model.activations = plan.activations;
  model.chunks = plan.chunks;
  return plan::memory_terms(plan, model);
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
