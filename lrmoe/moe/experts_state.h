// What the forward pass of the experts leaves for the backward pass, and the two
// passes themselves (experts.cpp ties them to autograd).
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "lrmoe/moe/dispatch.h"
#include "lrmoe/moe/experts.h"

namespace lrmoe::moe {

struct ExpertsState : torch::CustomClassHolder {
  ExpertsCall call;
  ExpertSlots slots;  // placement and weights in force in the forward pass
  std::int64_t top_k = 0;
  RoutedPairs pairs;  // this rank's, in source order
  Dispatch dispatch;
  // At the source; the last four only where the plan keeps a part.
  at::Tensor x;             // [T, d]
  at::Tensor source_gates;  // [T, k]
  at::Tensor out;           // o [T, d]
  at::Tensor statistics;    // [T * k, 0..2] fp32, pairs by number
  at::Tensor outputs;       // y [P, d] in source order: router gradient exact
  // At the destination, in destination order.
  at::Tensor rows;     // [N', d] x as received; activation mode keep
  at::Tensor gate_up;  // [P', 2n]; activation mode keep
  at::Tensor gates;    // [P']
  // Where only listed pairs' rows and gate_up were kept: their place there [P'],
  // and the row of each [L']. Undefined: all are there.
  at::Tensor compact, compact_row;

  bool scores() const { return selects() || call.plan->score; }
  bool selects() const { return !call.plan->keep_all; }
  bool recomputes() const { return call.options.activations == plan::Activations::recompute; }
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

/// Bytes of weights and gradients of the slots in use.
std::int64_t instance_bytes(const ExpertSlots& slots);

template <class... Tensors>
std::int64_t bytes_of(const Tensors&... tensors) {
  return (std::int64_t{0} + ... +
          (tensors.defined() ? static_cast<std::int64_t>(tensors.nbytes()) : 0));
}

inline std::vector<std::int32_t> to_int32(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

inline std::vector<std::int32_t> group_rows(const std::vector<Group>& groups) {
  std::vector<std::int32_t> rows;
  for (const auto& group : groups) {
    rows.push_back(static_cast<std::int32_t>(group.end - group.begin));
  }
  return rows;
}

}  // namespace lrmoe::moe
