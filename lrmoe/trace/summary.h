// What a trace's routing looks like, layer by layer (docs/traces.md, "Summary").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

/// Means over the steps, but for what says otherwise.
struct LayerSummary {
  int layer = 0;
  std::int64_t tokens = 0;      // of all steps
  std::int64_t pairs = 0;       // routed, of all steps
  std::int64_t not_routed = 0;  // of all steps
  double expert_imbalance = 1;  // greatest over mean pairs of an expert; 1 where there is none
  double rank_imbalance = 1;    // likewise of R ranks, expert e on rank floor(e R / E)
  double idle_experts = 0;      // experts without a pair
  double top_half_gates = 0;    // share of the |gates| that the larger half of the pairs holds
  double drift = 0;             // share of the pairs that went to other experts than before
  std::vector<double> heat;     // [experts] pairs over the mean, of all steps together
};

struct Summary {
  std::string file;
  Info info;
  int ranks = 0;  // R; 0: not asked for
  std::int64_t bytes = 0;
  bool sources = false;  // every layer has them
  bool scores = false;
  bool between_halves = false;  // one step alone: drift from its first half of the tokens
                                // to the second
  std::vector<LayerSummary> layers;
};

/// Reads every layer once. Drift between two sets of pairs is the total variation
/// distance of their shares per expert: sum_e |a_e - b_e| / 2.
Summary summarise(const Trace& trace, int ranks = 0);

/// A table for people.
std::string to_text(const Summary& summary);
/// The document `lrmoe-trace-info`, version 1.
std::string to_json(const Summary& summary);

}  // namespace lrmoe::trace
