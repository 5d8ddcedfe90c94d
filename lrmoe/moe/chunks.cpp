#include "lrmoe/moe/chunks.h"

#include <algorithm>

namespace lrmoe::moe {
namespace {

// Pairs of this source's routes by chunk: [routes in order of (rank, expert)][chunks].
std::vector<std::int32_t> count_by_route(const std::vector<RoutedPairs>& chunks,
                                         const std::vector<std::int64_t>& experts,
                                         std::int64_t tokens, std::int64_t top_k,
                                         const std::vector<plan::Route>& routes) {
  const auto chunk_count = static_cast<int>(chunks.size());
  std::vector<std::int32_t> counts(routes.size() * chunks.size(), 0);
  for (int c = 0; c < chunk_count; ++c) {
    const auto& pairs = chunks[static_cast<std::size_t>(c)];
    const std::int64_t first = chunk_tokens(tokens, c, chunk_count).begin * top_k;
    std::size_t next = 0, route = 0;
    for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
      for (std::int64_t i = 0; i < pairs.per_rank[rank]; ++i, ++next) {
        const auto expert = experts[static_cast<std::size_t>(first + pairs.pair[next])];
        while (routes[route].rank != static_cast<std::int32_t>(rank) ||
               routes[route].expert != expert) {
          ++route;
          LRMOE_ASSERT(route < routes.size(), "a chunk's pairs do not follow the split");
        }
        ++counts[route * chunks.size() + static_cast<std::size_t>(c)];
      }
    }
  }
  return counts;
}

}  // namespace

Range chunk_tokens(std::int64_t tokens, int chunk, int chunks) {
  return {tokens * chunk / chunks, tokens * (chunk + 1) / chunks};
}

std::vector<RoutedPairs> chunk_pairs(const RoutedPairs& pairs, std::int64_t tokens,
                                     std::int64_t top_k, int chunks) {
  std::vector<RoutedPairs> out(static_cast<std::size_t>(chunks));
  std::vector<std::int64_t> ends;  // of the chunks' pairs
  for (int c = 0; c < chunks; ++c) {
    ends.push_back(chunk_tokens(tokens, c, chunks).end * top_k);
    out[static_cast<std::size_t>(c)].per_rank.assign(pairs.per_rank.size(), 0);
  }
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
    for (std::int64_t i = 0; i < pairs.per_rank[rank]; ++i, ++next) {
      const std::int64_t pair = pairs.pair[next];
      const auto c = static_cast<std::size_t>(std::ranges::upper_bound(ends, pair) - ends.begin());
      out[c].pair.push_back(pair - (c == 0 ? 0 : ends[c - 1]));
      ++out[c].per_rank[rank];
    }
  }
  return out;
}

std::vector<plan::Split> arriving_routes(comm::Communicator& communicator,
                                         const std::vector<RoutedPairs>& pairs,
                                         const std::vector<std::int64_t>& experts,
                                         std::int64_t tokens, std::int64_t top_k,
                                         const plan::Split& sends, const plan::Split& receives,
                                         std::int64_t& bytes) {
  const std::size_t chunks = pairs.size();
  const int me = communicator.rank();
  plan::Split leaving = sends;
  std::stable_sort(leaving.begin(), leaving.end(),
                   [](const plan::Route& a, const plan::Route& b) { return a.rank < b.rank; });
  const std::vector<std::int32_t> counts = count_by_route(pairs, experts, tokens, top_k, leaving);

  std::vector<std::int64_t> send(static_cast<std::size_t>(communicator.size()), 0);
  std::vector<std::int64_t> receive = send;
  for (const plan::Route& route : leaving) {
    send[static_cast<std::size_t>(route.rank)] += static_cast<std::int64_t>(chunks);
    bytes += route.rank == me ? 0 : 4 * static_cast<std::int64_t>(chunks);
  }
  for (const plan::Route& route : receives) {
    receive[static_cast<std::size_t>(route.source)] += static_cast<std::int64_t>(chunks);
  }
  std::vector<std::int32_t> arrived(receives.size() * chunks);
  communicator.all_to_all_v(comm::view(std::span<const std::int32_t>(counts)), send,
                            comm::view(std::span<std::int32_t>(arrived)), receive);

  std::vector<plan::Split> out(chunks);
  for (std::size_t i = 0; i < receives.size(); ++i) {
    std::int32_t left = receives[i].pairs;
    for (std::size_t c = 0; c < chunks; ++c) {
      plan::Route part = receives[i];
      part.pairs = arrived[i * chunks + c];
      left -= part.pairs;
      if (part.pairs > 0) {
        out[c].push_back(part);
      }
    }
    LRMOE_ASSERT(left == 0, "a source's chunks are not its route");
  }
  return out;
}

}  // namespace lrmoe::moe
