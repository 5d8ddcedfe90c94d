// The working weights of the experts that a rank holds now.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::moe {

/// One instance per used slot. A rank that holds an expert in two slots (symi)
/// computes both in the first of them. Gate first in gate_up:
/// g = gate_up[s, :n] x, u = gate_up[s, n:] x, y = down[s] (silu(g) * u).
struct ExpertSlots {
  plan::Placement placement;  // [R, S], of all ranks
  int rank = 0;               // whose slots these are
  at::Tensor gate_up;         // [used(), 2n, d], leaf, requires grad
  at::Tensor down;            // [used(), d, n], leaf, requires grad

  /// The expert in slot s of this rank, or -1.
  std::int32_t expert(int s) const { return placement.at(rank, s); }
  /// Slot that computes `expert` here (its first), or -1.
  int slot_of(std::int32_t expert) const;
  /// Slots of `of_rank` that compute: used, and the first of their expert there.
  std::vector<int> instances(int of_rank) const;
  /// Slots of this rank that weights are held for: up to the last that is in use.
  std::int64_t used() const;
  /// Takes a new placement; the weights' contents are the caller's to fill,
  /// gradients are dropped. Slots that are no longer in use give their bytes back.
  void reset(const plan::Placement& next);
};

}  // namespace lrmoe::moe
