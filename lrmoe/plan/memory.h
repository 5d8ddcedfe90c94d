// Pass "memory": bytes of one MoE layer on each rank, from the plan's counts.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/plan/options.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

struct MemoryModel {
  std::int64_t hidden = 0;            // d
  std::int64_t width = 0;             // n
  std::int64_t weight_bytes = 2;      // per element of expert weights and their gradients
  std::int64_t activation_bytes = 2;  // per element of what is sent, kept and computed
  std::int64_t gate_bytes = 4;        // per gate
  Activations activations = Activations::keep;
  int chunks = 1;  // parts in which both passes run, one after the other
};

/// Rows (tokens, each once per rank) that `tokens` tokens send to a rank with
/// `pairs` pairs, when every pair of a token ends there with the same chance:
/// tokens * (1 - (1 - pairs / (k tokens))^k), rounded up.
std::int64_t expected_rows(std::int64_t tokens, std::int64_t pairs, int top_k);

/// Terms of every rank, [R]. With P pairs and N rows here, M rows sent from here,
/// subscript b for the backward pass:
///   weights     used slots * 3dn            gradients  as weights
///   activations keep: N d + P 2n, and P gates; recompute: none
///   buffers     forward:  M d sent, N d and M d of the combine, N d received where not kept
///               backward: 2 (M_b + N_b) d for delta and dx, (M_b + N_b) d for x where not kept
///   workspace   forward:  P (2d + n), and P 2n where not kept
///               backward: P_b (3d + 4n), and P_b 2n where not kept
/// Buffers and workspace are those of the phase in which they sum to more.
/// Row counts are not in the plan: expected_rows stands in for them.
std::vector<MemoryTerms> memory_terms(const Plan& plan, const MemoryModel& model);

/// Bytes that a rank's MoE layers may take together (plan/budget.h).
struct MemoryBudget {
  std::int64_t bytes = 0;  // 0: no budget
  int layers = 1;          // MoE layers of the model
  int most_chunks = 64;
  MemoryModel model;
};

/// The fullest rank's terms.
MemoryTerms fullest(const std::vector<MemoryTerms>& terms);

}  // namespace lrmoe::plan
