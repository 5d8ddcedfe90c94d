#include "lrmoe/trace/demand.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "lrmoe/base/error.h"

namespace lrmoe::trace {
namespace {

/// The rank of place i of `count` places in equal contiguous runs.
std::vector<std::int32_t> equal_runs(std::int64_t count, int ranks) {
  std::vector<std::int32_t> run(static_cast<std::size_t>(count));
  const std::int64_t each = count / ranks, longer = count % ranks;
  std::int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t end = at + each + (r < longer ? 1 : 0);
    std::fill(run.begin() + at, run.begin() + end, r);
    at = end;
  }
  return run;
}

}  // namespace

std::vector<std::int32_t> sources_of(const Routing& routing, int ranks, int recorded) {
  LRMOE_ASSERT(ranks >= 1, "no ranks");
  std::vector<std::int32_t> runs = equal_runs(routing.tokens, ranks);
  const std::vector<std::int32_t>& given = routing.sources;
  if (given.empty()) {
    return runs;
  }
  const bool fits = *std::max_element(given.begin(), given.end()) < ranks;
  if (recorded == ranks || (recorded == 0 && fits)) {
    return given;
  }
  // Tokens of another number of ranks: in the order of their sources, cut anew.
  std::vector<std::size_t> order(given.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return given[a] < given[b]; });
  std::vector<std::int32_t> sources(given.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    sources[order[i]] = runs[i];
  }
  return sources;
}

std::vector<std::int32_t> demand(const Routing& routing, int experts, int ranks, int recorded) {
  if (routing.tokens > std::numeric_limits<std::int32_t>::max()) {
    throw InputError("a layer of " + std::to_string(routing.tokens) +
                     " tokens: the planner counts up to 2147483647 pairs of an expert");
  }
  const std::vector<std::int32_t> sources = sources_of(routing, ranks, recorded);
  const auto e_count = static_cast<std::size_t>(experts);
  const auto k = static_cast<std::size_t>(routing.top_k);
  std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks) * e_count, 0);
  for (std::size_t t = 0; t < sources.size(); ++t) {
    const std::size_t row = static_cast<std::size_t>(sources[t]) * e_count;
    for (std::size_t j = t * k; j < (t + 1) * k; ++j) {
      if (routing.ids[j] != kNotRouted) {
        ++counts[row + static_cast<std::size_t>(routing.ids[j])];
      }
    }
  }
  return counts;
}

std::vector<std::int32_t> demand(const Trace& trace, int step, int layer, int ranks) {
  return demand(trace.read(step, layer), trace.info().experts, ranks, trace.info().ranks);
}

std::vector<std::int64_t> pairs_per_expert(const Routing& routing, int experts) {
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(experts), 0);
  for (const std::int32_t id : routing.ids) {
    if (id != kNotRouted) {
      ++pairs[static_cast<std::size_t>(id)];
    }
  }
  return pairs;
}

std::int64_t routed_pairs(const Routing& routing) {
  return std::count_if(routing.ids.begin(), routing.ids.end(),
                       [](std::int32_t id) { return id != kNotRouted; });
}

Routing slice(const Routing& routing, std::int64_t begin, std::int64_t end) {
  LRMOE_ASSERT(begin >= 0 && begin <= end && end <= routing.tokens, "no such tokens");
  const auto cut = [&](const auto& values, std::int64_t width) {
    using Values = std::decay_t<decltype(values)>;
    return values.empty() ? Values{}
                          : Values(values.begin() + begin * width, values.begin() + end * width);
  };
  const std::int64_t k = routing.top_k;
  return {end - begin,           routing.top_k,           cut(routing.ids, k),
          cut(routing.gates, k), cut(routing.sources, 1), cut(routing.scores, k)};
}

}  // namespace lrmoe::trace
