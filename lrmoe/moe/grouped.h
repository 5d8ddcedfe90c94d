// Ragged grouped GEMMs and the gated activation: no padding, no capacity. For
// now a loop of GEMMs, one per group.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "lrmoe/moe/dispatch.h"

namespace lrmoe::moe {

/// y[i] = W[slot of i] x[i]. x: [P, in]; weight: [S, out, in]; result [P, out].
at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight,
                          std::span<const Group> groups);
/// dx[i] = W[slot of i]^T dy[i]. dy: [P, out]; result [P, in].
at::Tensor grouped_linear_input(const at::Tensor& dy, const at::Tensor& weight,
                                std::span<const Group> groups);
/// dW[s] += sum over the slot's pairs of dy[i] x[i]^T. out: [slots, out, in].
///   written: [slots] whether a slot holds a sum already; the first one is written,
///   not added, and marks its slot.
void grouped_linear_weight(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                           std::span<const Group> groups, std::vector<bool>& written);

/// a = silu(g) * u, with gate_up = [g | u]: [P, 2n] -> [P, n].
at::Tensor gated(const at::Tensor& gate_up);
/// d[g | u] from da: [P, n] -> [P, 2n].
at::Tensor gated_backward(const at::Tensor& da, const at::Tensor& gate_up);
/// The same, written over gate_up.
void gated_backward_in_place(const at::Tensor& da, at::Tensor& gate_up);

}  // namespace lrmoe::moe
