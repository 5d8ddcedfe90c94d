// Weights from the ranks that own them to the slots of the placement in force, and
// the slots' gradients back: what lets an expert have replicas while its parameters,
// and any torch optimizer's state of them, stay with one rank.
#pragma once

#include <ATen/ATen.h>

#include "python/csrc/layer_state.h"

namespace lrmoe::python {

/// owned: [owned slots, ...] of this rank -> [S, ...], zero in empty slots. Collective.
at::Tensor deliver(LayerState& layer, const at::Tensor& owned);

/// slots: [S, ...] of this rank -> [owned slots, ...], summed over an expert's
/// instances in order of (rank, slot). Collective.
at::Tensor collect(LayerState& layer, const at::Tensor& slots);

}  // namespace lrmoe::python
