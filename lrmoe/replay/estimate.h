// Memory of a model's MoE layers before anything runs: `lrmoe estimate`. The demand is
// assumed: every rank routes its tokens alike, experts are as uneven as asked for.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/cost/shape.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::replay {

struct EstimateOptions {
  cost::Shape shape;  // with experts, top_k and layers
  int ranks = 1;
  int slots = 0;            // per rank; 0: ceil(E / R) + 2
  std::int64_t tokens = 0;  // a step (or micro-batch), over all ranks
  plan::StrategyOptions strategy;
  int chunks = 1;
  double imbalance = 1;      // pairs of the fullest expert over the mean, 1 to E / k
  std::int64_t budget = 0;   // bytes of a rank; 0: none
  int layers_in_flight = 0;  // 0: all MoE layers
};

/// What the planner makes of a budget for the assumed demand, as a run would.
struct WithinBudget {
  std::string refused;  // not empty: even the least does not fit, in the planner's words
  int slots = 0;        // in use on the fullest rank
  plan::Activations activations = plan::Activations::keep;
  int chunks = 1;
  std::int64_t kept = 0;           // pairs of a layer
  plan::MemoryTerms terms;         // of the fullest rank, for the layers in flight
  std::int64_t bytes = 0;          // their sum
  std::vector<std::string> notes;  // what is given up; none: nothing
};

/// A rank's memory for the layers in flight: weights, gradients and activations of all
/// of them, buffers and workspace of one at a time.
struct Estimate {
  EstimateOptions options;  // as resolved
  int slots = 0;
  std::vector<plan::MemoryTerms> ranks;  // [R]
  std::int64_t optimizer = 0;            // of a rank: fp32 weights and moments; beside the terms
  std::int64_t kept = 0, routed = 0;     // pairs of a layer
  std::int64_t most_tokens = 0;          // the largest step that the budget holds; 0: none
  // What the same tokens need at least: recomputing, in plan::kMostChunks chunks, no
  // replicas.
  std::int64_t smallest_budget = 0;
  std::int64_t smallest_most_tokens = 0;  // that the budget holds then
  std::optional<WithinBudget> within;     // where there is a budget and `lrmoe` plans
  std::vector<std::string> notes;
};

/// Pairs of every expert in proportion: a geometric series whose first is `imbalance`
/// times the mean. Integers in 2^-20 of a pair share; [E].
std::vector<std::int64_t> assumed_shares(int experts, double imbalance);

/// InputError where tokens do not divide over the ranks, the imbalance is out of range,
/// the cluster cannot hold the experts, or settings make no sense.
Estimate estimate(const EstimateOptions& options);

std::string to_text(const Estimate& estimate);
nlohmann::ordered_json to_json(const Estimate& estimate);

}  // namespace lrmoe::replay
