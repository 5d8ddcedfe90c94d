// What the forward pass of the experts leaves for the backward pass, and the two
// passes themselves (experts.cpp ties them to autograd).
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "lrmoe/moe/cache.h"
#include "lrmoe/moe/chunks.h"
#include "lrmoe/moe/dispatch.h"
#include "lrmoe/moe/experts.h"

namespace lrmoe::moe {

/// The pairs of some of this rank's tokens, which a pass handles in one go. All
/// pairs and tokens are numbered from the chunk's first token.
struct Chunk {
  Range tokens;
  RoutedPairs pairs;
  Dispatch dispatch;
  // At the source: y [P, d] in source order; router gradient exact.
  at::Tensor outputs;
  // At the destination, in destination order; rows and gate_up where they are kept.
  at::Tensor rows;     // [N', d] x as received
  at::Tensor gate_up;  // [P', 2n]
  at::Tensor gates;    // [P']
  // Where only some pairs' rows and gate_up were kept: their place there [P'],
  // and the row of each [L']. Undefined: all are there.
  at::Tensor compact, compact_row;
};

struct ExpertsState : torch::CustomClassHolder {
  ExpertsCall call;
  ExpertSlots slots;  // placement and weights in force in the forward pass
  std::int64_t top_k = 0;
  // What a backward pass is asked for; the same on every rank.
  bool wants_x = true, wants_gates = true, wants_weights = true;
  RoutedPairs pairs;  // this rank's, in source order
  std::vector<Chunk> chunks;
  // At the source; the last three only where pairs are scored.
  at::Tensor x;             // [T, d]
  at::Tensor source_gates;  // [T, k]
  at::Tensor out;           // o [T, d]
  at::Tensor statistics;    // [T * k, 0..3] fp32, pairs by number

  // Activation mode quota: the room of this rank's instances, and for each pair of
  // this source [T * k] the rank that has it cached, or -1.
  CacheRoom room;
  std::vector<std::int32_t> home;

  bool scores() const { return selects() || call.plan->score; }
  bool selects() const { return !call.plan->keep_all; }
  bool recomputes() const { return call.plan->activations == plan::Activations::recompute; }
  bool caches() const {
    return call.plan->activations == plan::Activations::quota && selects() && call.backward;
  }
  /// The oracle's scores need every pair's activations.
  bool oracle() const { return scores() && call.options.metric == plan::Metric::exact; }
  bool keeps_activations() const { return call.backward && (!recomputes() || oracle()); }
  bool keeps_outputs() const {
    return selects() && call.options.router_gradient == plan::RouterGradient::exact;
  }
  at::Tensor gate_up_weight() const { return slots.gate_up.detach(); }
  at::Tensor down_weight() const { return slots.down.detach(); }
};

struct ExpertsGradients {
  at::Tensor x, gates, gate_up, down;
};

at::Tensor experts_forward(ExpertsState& state, const at::Tensor& x, const at::Tensor& gates);
ExpertsGradients experts_backward(ExpertsState& state, const at::Tensor& delta);

/// Adds counts to those that are there: [0] when there are none yet.
void add_counts(std::vector<std::int32_t>& sum, const std::vector<std::int64_t>& counts);
void add_rows(std::vector<std::int32_t>& sum, const std::vector<Group>& groups);

}  // namespace lrmoe::moe
