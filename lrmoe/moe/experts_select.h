// Which pairs the experts' backward pass keeps, and their way to the instances
// that compute it.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "lrmoe/moe/experts_state.h"
#include "lrmoe/moe/wire.h"

namespace lrmoe::moe {

/// What a source decided once delta was there. Empty where all pairs are kept.
struct Selection {
  std::vector<float> weight;          // [T * k] 1/pi, 0: not kept
  at::Tensor delta_o;                 // <delta, o> [T], where the router's gradient needs it
  std::vector<RoutedPairs> kept;      // by chunk: where the kept pairs go
  std::vector<plan::Split> arriving;  // by chunk: what comes; empty: the plan's backward split
};

/// Scores (where the plan scores) and selects (where it keeps a part) among all of
/// this rank's pairs. Drops what only scores need. Collective where metric exact
/// or two chunks or more ask for it.
Selection select(ExpertsState& s, Wire& wire, const at::Tensor& delta);

/// A chunk's pairs on their way back, lined up at the destination.
struct Kept {
  Dispatch dispatch;
  at::Tensor weight;       // [tokens * k] 1/pi at the source, 0: not kept
  at::Tensor coefficient;  // [K] w p, in destination order
  at::Tensor weights;      // [K] w
  // [K] the pair's place in the forward dispatch, where activations were kept; -1:
  // this pair's were not.
  at::Tensor place;
  at::Tensor sent_again;  // at the source, in its order: which of the sent pairs are such
};

/// Sends the kept pairs of chunk `index` on their way. Collective.
Kept send_kept(const ExpertsState& s, Wire& wire, const Selection& selection, std::size_t index);

}  // namespace lrmoe::moe
