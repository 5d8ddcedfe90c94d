// Memory of replayed layers at a model's dimensions, one or several in flight, and
// slots as the trainer resolves them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrmoe/cost/shape.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::replay {

/// One layer's memory on every rank, as the plan runs (its activations and chunks).
struct LayerMemory {
  std::vector<plan::MemoryTerms> terms;  // [R] at its own peak
  std::vector<std::int64_t> kept;        // [R] from its forward pass to its backward pass
};

/// What the memory of a strategy's plans at a model's dimensions follows from, each
/// token standing for `scale` tokens.
plan::MemoryModel memory_model(const plan::StrategyOptions& options, const cost::Shape& shape,
                               double scale);

LayerMemory memory_of(const plan::Plan& plan, plan::MemoryModel model);

/// Ranks' memory with all of some layers in flight: everybody's weights, gradients and
/// kept activations, and of the layer whose passes need most beyond what it keeps,
/// the rest of its activations, its buffers and its workspace.
class LayersInFlight {
 public:
  explicit LayersInFlight(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  void add(const LayerMemory& layer);
  /// [R]; what the layers hold is multiplied by `factor` (layers in flight over layers
  /// added).
  std::vector<plan::MemoryTerms> terms(double factor) const;

 private:
  struct Rank {
    std::int64_t weights = 0, gradients = 0, kept = 0;
    plan::MemoryTerms passing;  // activations beyond kept, buffers, workspace
  };
  std::vector<Rank> ranks_;
};

/// Weights, gradients, activations and buffers: all but workspace.
inline std::int64_t subtotal(const plan::MemoryTerms& terms) {
  return terms.weights + terms.gradients + terms.activations + terms.buffers;
}

/// Slots per rank: ceil(E / R) where experts never move; else those wanted, or
/// ceil(E / R) + 2 for 0, and no more than there are experts (but for symi's).
int slots_for(const plan::Strategy& strategy, int ranks, int wanted, int experts);

}  // namespace lrmoe::replay
