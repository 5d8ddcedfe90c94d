#include "lrmoe/replay/sources.h"

#include <algorithm>

#include "lrmoe/trace/demand.h"

namespace lrmoe::replay {

Sources split_sources(const trace::Routing& routing, int experts, int ranks, int recorded) {
  const std::vector<std::int32_t> rank_of = trace::sources_of(routing, ranks, recorded);
  const auto k = static_cast<std::size_t>(routing.top_k);
  Sources out{std::vector<Source>(static_cast<std::size_t>(ranks)), plan::Counts(ranks, experts)};
  for (const std::int32_t rank : rank_of) {
    ++out.ranks[static_cast<std::size_t>(rank)].tokens;
  }
  for (Source& source : out.ranks) {
    const std::size_t pairs = static_cast<std::size_t>(source.tokens) * k;
    source.experts.reserve(pairs);
    source.gates.reserve(pairs);
    source.scores.reserve(pairs);
  }
  const std::vector<float>& scores = routing.scores.empty() ? routing.gates : routing.scores;
  for (std::size_t t = 0; t < rank_of.size(); ++t) {
    const std::int32_t rank = rank_of[t];
    Source& source = out.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = t * k; i < (t + 1) * k; ++i) {
      const std::int32_t expert = routing.ids[i];
      const bool routed = expert != trace::kNotRouted;
      source.experts.push_back(routed ? expert : experts);
      source.gates.push_back(routing.gates[i]);
      source.scores.push_back(scores[i]);
      if (routed) {
        ++out.demand.at(rank, expert);
      }
    }
  }
  return out;
}

trace::Routing with_tokens(const trace::Routing& routing, std::int64_t tokens) {
  if (tokens == routing.tokens || routing.tokens == 0) {
    return routing;
  }
  trace::Routing out;
  out.tokens = tokens;
  out.top_k = routing.top_k;
  const auto fill = [&](auto& to, const auto& from, std::int64_t per_token) {
    if (from.empty()) {
      return;
    }
    to.reserve(static_cast<std::size_t>(tokens * per_token));
    for (std::int64_t whole = tokens / routing.tokens; whole > 0; --whole) {
      to.insert(to.end(), from.begin(), from.end());
    }
    const std::int64_t part = tokens % routing.tokens;
    for (std::int64_t i = 0; i < part; ++i) {
      // The tokens of a rank lie together: the first ones would leave ranks without.
      const std::int64_t token = routing.sources.empty() ? i : i * routing.tokens / part;
      const auto first = from.begin() + token * per_token;
      to.insert(to.end(), first, first + per_token);
    }
  };
  fill(out.ids, routing.ids, routing.top_k);
  fill(out.gates, routing.gates, routing.top_k);
  fill(out.sources, routing.sources, 1);
  fill(out.scores, routing.scores, routing.top_k);
  return out;
}

}  // namespace lrmoe::replay
