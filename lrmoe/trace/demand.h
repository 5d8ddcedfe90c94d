// What a routing asks of R ranks: plain counts for the planner and the replay.
#pragma once

#include <cstdint>
#include <vector>

#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

/// The rank of each token, [tokens]. Given sources stand as they are where they
/// were recorded on as many ranks (`recorded`, or 0: not known, and all are below
/// `ranks`); those of another number of ranks put the tokens in the order of their
/// sources. Where there is no such source, the tokens are split into equal
/// contiguous runs, the first ones a token longer where they do not divide.
std::vector<std::int32_t> sources_of(const Routing& routing, int ranks, int recorded = 0);

/// Pairs per (source rank, expert), row-major [ranks * experts]: the planner's demand.
/// InputError where a count passes 2^31 - 1.
std::vector<std::int32_t> demand(const Routing& routing, int experts, int ranks, int recorded = 0);
std::vector<std::int32_t> demand(const Trace& trace, int step, int layer, int ranks);

/// Pairs of each expert, [experts].
std::vector<std::int64_t> pairs_per_expert(const Routing& routing, int experts);

/// Pairs that were routed.
std::int64_t routed_pairs(const Routing& routing);

/// The tokens [begin, end), with all that is known of them.
Routing slice(const Routing& routing, std::int64_t begin, std::int64_t end);

}  // namespace lrmoe::trace
