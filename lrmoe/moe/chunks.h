// A pass in chunks: some of each rank's tokens at a time, each chunk with its own
// exchange of rows, so that buffers and workspace are those of a chunk. All pairs
// of a token are in one chunk: what is sent and how it is summed do not change.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/moe/dispatch.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::moe {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Tokens of chunk c of `chunks`: as even as integers allow.
Range chunk_tokens(std::int64_t tokens, int chunk, int chunks);

/// The pairs of each chunk, in the order that they have in `pairs`, numbered from
/// the chunk's first token.
std::vector<RoutedPairs> chunk_pairs(const RoutedPairs& pairs, std::int64_t tokens,
                                     std::int64_t top_k, int chunks);

/// The routes to this rank, `receives`, with each chunk's pairs: the sources
/// say how theirs divide. Collective where there are two chunks or more: 4 bytes per
/// route and chunk. `pairs`: of this rank, by chunk, routed as `sends` says.
///   bytes: what was sent to other ranks is added.
std::vector<plan::Split> arriving_routes(comm::Communicator& communicator,
                                         const std::vector<RoutedPairs>& pairs,
                                         const std::vector<std::int64_t>& experts,
                                         std::int64_t tokens, std::int64_t top_k,
                                         const plan::Split& sends, const plan::Split& receives,
                                         std::int64_t& bytes);

/// Calls f(begin, end) for blocks of `rows` rows: at most 16, so that what is made
/// for a block is small beside what there is for all rows.
template <class Function>
void in_blocks(std::int64_t rows, const Function& f) {
  constexpr std::int64_t kBlocks = 16, kLeast = 256;
  const std::int64_t block = std::max(kLeast, (rows + kBlocks - 1) / kBlocks);
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    f(begin, std::min(begin + block, rows));
  }
}

}  // namespace lrmoe::moe
