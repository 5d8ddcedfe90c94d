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
  int chunks = 1;                    // parts in which both passes run, one after the other
  std::int64_t index_bytes = 8;      // per index of the dispatch
  std::int64_t statistic_bytes = 4;  // per number of the statistics
  int statistics = 0;                // fp32 numbers per pair that the scores need
  bool outputs = false;              // router gradient exact: y of every pair stays at its source
  bool oracle = false;               // metric exact: every pair's activations stay
  double scale = 1;                  // tokens that each token of the plan stands for
};

/// What the options say of the scores: statistics, outputs, oracle.
void set_scores(MemoryModel& model, const LrmoeOptions& options);

/// Rows (tokens, each once per rank) that `tokens` tokens send to a rank with
/// `pairs` pairs, when every pair of a token ends there with the same chance:
/// tokens * (1 - (1 - pairs / (k tokens))^k), rounded up. With `experts` above k the
/// k experts of a token are distinct: drawn without putting back.
std::int64_t expected_rows(std::int64_t tokens, std::int64_t pairs, int top_k, int experts = 0);

enum class Phase : std::uint8_t { forward, backward };

/// Bytes at the peak of one phase on every rank, [R]: what the allocator holds for
/// this layer and micro-batch, weights included; the forward pass has no gradients.
/// docs/memory.md says what is alive when. Activation mode and number of chunks
/// are the model's, not the plan's. Row counts are not in the plan: expected_rows
/// stands in for them. Bytes of x, delta and of the tokens' gates are the caller's.
std::vector<MemoryTerms> phase_terms(const Plan& plan, const MemoryModel& model, Phase phase);

/// The phase in which activations, buffers and workspace sum to more, with the
/// gradients, which are there from the first backward pass of a step on.
std::vector<MemoryTerms> memory_terms(const Plan& plan, const MemoryModel& model);

/// Chunks that a plan takes at most to fit a budget.
inline constexpr int kMostChunks = 64;

/// Bytes that a rank's MoE layers may take together (plan/budget.h).
struct MemoryBudget {
  std::int64_t bytes = 0;  // 0: no budget
  int layers = 1;          // MoE layers of the model
  int most_chunks = kMostChunks;
  MemoryModel model;
  int chunks = 1;  // that the passes run in anyway
};

/// What stays on every rank between a micro-batch's forward and backward pass, [R]:
/// activations, indices and gates, and what scoring needs. As many layers' as are in
/// flight are there at once. Activation mode and chunks are the model's.
std::vector<std::int64_t> kept_bytes(const Plan& plan, const MemoryModel& model);

/// The fullest rank's terms.
MemoryTerms fullest(const std::vector<MemoryTerms>& terms);

}  // namespace lrmoe::plan
