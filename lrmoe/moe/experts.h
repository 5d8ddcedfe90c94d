// The routed experts over all ranks as one autograd function: dispatch, grouped
// gated MLPs, combine; and back again, for all pairs or for those that the plan's
// quotas keep.
//
// Forward, per rank: one x row per (token, rank) out; g, u = Wg x, Wu x;
// a = silu(g) * u; y = Wd a; per row sum_k p_k y_k back; summed over ranks in
// order of rank. Every routed pair is computed, whatever is kept later.
// Backward: pairs are scored and selected at their source (moe/scoring.h,
// plan/selection.h). For kept pairs, with w = 1/pi: delta = dL/do travels as x did;
// r = Wd^T delta; dp = <r, a>; da = w p r; dWd = w p delta a^T; d[g, u] and so
// dWg, dWu, dx; one dx row per (token, rank) and one dp per pair back.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/cost/work.h"
#include "lrmoe/moe/expert_slots.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/options.h"
#include "lrmoe/plan/rank_plan.h"

namespace lrmoe::moe {

/// What one call works with. The communicator outlives the backward pass.
struct ExpertsCall {
  comm::Communicator* communicator = nullptr;
  std::shared_ptr<const plan::RankPlan> plan;
  std::vector<std::int64_t> experts;      // [T * k] the expert of each pair of this rank
  std::vector<std::uint8_t> listed;       // [T * k] 1: on the shortlist by gate; empty: all are
  std::shared_ptr<cost::LayerWork> work;  // filled in by both passes
  bool backward = true;                   // false: nothing is kept for a backward pass
  bool zero_deltas = false;               // tokens with delta = 0 are looked for and cost nothing
  plan::LrmoeOptions options;             // metric, mode, router gradient, activations
  /// Gets the scores of this rank's pairs in the backward pass of a plan that
  /// keeps a part; may be null.
  std::shared_ptr<plan::ScoreHistogram> histogram;
  /// Gets the same scores, [T * k]; may be empty.
  std::function<void(std::span<const float>)> watch_scores;
};

/// o [T, d] = sum over each token's pairs of p_k y_k; dropped pairs add nothing
/// and have no gradient. Collective, and so is its backward pass.
///   x: [T, d]; gates: p [T, k] fp32 (fp64 when x is); slots: of this rank, in x's dtype.
at::Tensor experts(const at::Tensor& x, const at::Tensor& gates, const ExpertSlots& slots,
                   ExpertsCall call);

}  // namespace lrmoe::moe
