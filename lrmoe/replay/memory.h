// Memory of a replayed layer at a model's dimensions, and slots as the trainer
// resolves them.
#pragma once

#include <vector>

#include "lrmoe/cost/shape.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::replay {

/// Terms of every rank, [R], of the plan as it runs (its activations and chunks), each
/// token standing for `scale` tokens.
std::vector<plan::MemoryTerms> memory_of(const plan::Plan& plan, const cost::Shape& shape,
                                         double scale);

/// Slots per rank: ceil(E / R) where experts never move; else those wanted, or
/// ceil(E / R) + 2 for 0, and no more than there are experts (but for symi's).
int slots_for(const plan::Strategy& strategy, int ranks, int wanted, int experts);

}  // namespace lrmoe::replay
