// A traced layer as the ranks see it: every rank's own tokens and pairs, and the
// demand that they add up to.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/plan/types.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::replay {

/// The tokens of one rank, in the trace's order.
struct Source {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> experts;  // [T * k]; E: not routed
  std::vector<float> gates;           // [T * k]
  std::vector<float> scores;          // [T * k]; the gates where the trace has no scores
};

struct Sources {
  std::vector<Source> ranks;  // [R]
  plan::Counts demand;        // [R, E]
};

/// `recorded`: the ranks that the trace's sources refer to, or 0 (trace::sources_of).
Sources split_sources(const trace::Routing& routing, int experts, int ranks, int recorded);

/// Exactly `tokens` tokens: all of them as often as they fit in, and of the rest the
/// first ones; with sources, every so many-th, so that all ranks have their share.
trace::Routing with_tokens(const trace::Routing& routing, std::int64_t tokens);

}  // namespace lrmoe::replay
