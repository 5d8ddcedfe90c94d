#include "lrmoe/replay/cache.h"

#include <algorithm>
#include <tuple>

#include "lrmoe/plan/pairs.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/layer.h"

namespace lrmoe::replay {
namespace {

struct Candidate {
  std::int32_t rank, expert;
  float gate;
  std::int32_t source;
  std::int64_t pair;
};

/// All pairs that may be cached, as they arrive: by source, in its order.
std::vector<Candidate> arriving(const plan::Plan& plan, const Sources& sources,
                                const plan::LrmoeOptions& options) {
  std::vector<Candidate> candidates;
  for (int s = 0; s < plan.cluster.ranks; ++s) {
    const Source& source = sources.ranks[static_cast<std::size_t>(s)];
    const std::vector<std::uint8_t> listed = shortlist(options, source);
    const plan::RoutedPairs pairs =
        plan::route_pairs(source.experts, plan.cluster.experts, plan::routes_of(plan.forward, s),
                          plan.cluster.ranks, listed);
    auto next = pairs.pair.begin();
    for (std::size_t rank = 0; rank < pairs.per_rank.size(); ++rank) {
      for (const auto end = next + pairs.per_rank[rank]; next != end; ++next) {
        const auto i = static_cast<std::size_t>(*next);
        if (listed.empty() || listed[i] != 0) {
          candidates.push_back({static_cast<std::int32_t>(rank),
                                static_cast<std::int32_t>(source.experts[i]), source.gates[i], s,
                                *next});
        }
      }
    }
  }
  return candidates;
}

}  // namespace

CachedPairs cache_likely(const plan::Plan& plan, const Sources& sources,
                         const plan::LrmoeOptions& options) {
  const plan::Cluster& cluster = plan.cluster;
  const plan::Loads forward = plan::expert_loads(plan.forward, cluster.experts, cluster.ranks);
  const plan::Loads backward = plan::expert_loads(plan.backward, cluster.experts, cluster.ranks);
  std::vector<Candidate> candidates = arriving(plan, sources, options);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::tie(a.rank, a.expert, b.gate) < std::tie(b.rank, b.expert, a.gate);
                   });
  CachedPairs out;
  for (const Source& source : sources.ranks) {
    out.home.emplace_back(source.experts.size(), -1);
  }
  out.on_rank.assign(sources.ranks.size(), 0);
  plan::Loads taken(cluster.experts, cluster.ranks);
  for (const Candidate& c : candidates) {
    std::int64_t& count = taken.at(c.expert, c.rank);
    if (count < std::min(forward.at(c.expert, c.rank), backward.at(c.expert, c.rank))) {
      ++count;
      ++out.on_rank[static_cast<std::size_t>(c.rank)];
      out.home[static_cast<std::size_t>(c.source)][static_cast<std::size_t>(c.pair)] = c.rank;
    }
  }
  return out;
}

}  // namespace lrmoe::replay
