// The load-recalibration metric: estimates of a pair's contribution to its
// expert's update. With r = Wd^T delta and s'(g) = sig(g)(1 + g(1 - sig(g))) it is
// exactly
//   S^2 = p^2 |delta|^2 |a|^2 + p^2 |x|^2 (|r*u*s'(g)|^2 + |r*silu(g)|^2).
// r costs a GEMM that a dropped pair must not need, so it is estimated from
// numbers that the forward pass sends back per pair:
//   gate p; gate-grad p|delta|; down-norm p|delta||a|;
//   update-norm p|delta| sqrt(|a|^2 + (|x|^2/d) q),
//     q = |c*u*s'(g)|^2 + |c*silu(g)|^2, c_i = |Wd[:,i]|: E[S^2] for isotropic delta;
//   update-router p|delta| sqrt(|a|^2 + (|x|^2/d) (q + |o|^2 / (sum p)^2)): what the
//     pair adds to the router's update too. With the gradient `centred`
//     (moe/router_gradient.h) that is p |x| |dp - b|, and b = <delta, o> / sum p has
//     the mean square |delta|^2 |o|^2 / d / (sum p)^2. Without it pairs whose own
//     update is small get a weight 1/pi that drowns the router (docs/evidence.md);
//   exact S (an oracle: delta visits every pair's expert first);
//   random: all equal when sampled, random numbers in mode top.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "lrmoe/moe/grouped.h"
#include "lrmoe/plan/options.h"

namespace lrmoe::moe {

/// A shortlist by output needs |y| of every pair.
bool needs_output_norm(const plan::LrmoeOptions& options);

/// The shortlist by gate of a rank: [T * k] flags of the pairs with the largest
/// p; empty where the options have no such shortlist. gates: [T, k].
std::vector<std::uint8_t> shortlist_by_gate(const plan::LrmoeOptions& options,
                                            const at::Tensor& gates);

/// At the expert's rank: [P', plan::statistics_of]: |a|^2 and q, as the metric
/// needs them; the last, |y|, where it is needed, is for add_output_norms to fill in.
///   a: [P', n]; gate_up: [P', 2n]; down: [S, d, n].
at::Tensor pair_statistics(const plan::LrmoeOptions& options, const at::Tensor& a,
                           const at::Tensor& gate_up, const at::Tensor& down,
                           std::span<const Group> groups);
/// |y| of each pair, where the options need it. y: [P', d].
void add_output_norms(const plan::LrmoeOptions& options, const at::Tensor& y,
                      at::Tensor& statistics);

/// At the source: scores [T * k] fp32 (metrics other than exact and random).
///   gates: p [T, k]; delta, x: [T, d]; statistics: [T * k, n] in order of pairs;
///   out: o [T, d] (update-router).
at::Tensor score_pairs(plan::Metric metric, const at::Tensor& gates, const at::Tensor& delta,
                       const at::Tensor& x, const at::Tensor& statistics, const at::Tensor& out);

/// S^2 / p^2 per pair, fp32 [P]: times the squared coefficient it is a pair's
/// exact contribution. All arguments by pair: delta [P, d]; x_square |x|^2 [P];
/// a, r [P, n]; gate_up [P, 2n].
at::Tensor exact_square(const at::Tensor& delta, const at::Tensor& x_square, const at::Tensor& a,
                        const at::Tensor& r, const at::Tensor& gate_up);

/// Sums of squares of each row, at least fp32: [P, n] -> [P].
at::Tensor squares(const at::Tensor& rows);
/// <a_i, b_i> of each row, summed in `dtype`: [P, n] x 2 -> [P].
at::Tensor row_products(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype);

}  // namespace lrmoe::moe
