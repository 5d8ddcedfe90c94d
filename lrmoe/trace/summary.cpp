#include "lrmoe/trace/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/demand.h"

namespace lrmoe::trace {
namespace {

using Loads = std::vector<std::int64_t>;

std::int64_t sum_of(const Loads& loads) {
  return std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
}

double greatest_over_mean(const Loads& loads) {
  const std::int64_t sum = sum_of(loads);
  return sum == 0 ? 1.0
                  : static_cast<double>(*std::max_element(loads.begin(), loads.end())) *
                        static_cast<double>(loads.size()) / static_cast<double>(sum);
}

Loads per_rank(const Loads& experts, int ranks) {
  Loads loads(static_cast<std::size_t>(ranks), 0);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    loads[e * static_cast<std::size_t>(ranks) / experts.size()] += experts[e];
  }
  return loads;
}

double distance(const Loads& a, const Loads& b) {
  const auto all_a = static_cast<double>(sum_of(a)), all_b = static_cast<double>(sum_of(b));
  if (all_a == 0 || all_b == 0) {
    return 0;
  }
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) {
    sum += std::abs(static_cast<double>(a[e]) / all_a - static_cast<double>(b[e]) / all_b);
  }
  return sum / 2;
}

double top_half(const Routing& routing) {
  std::vector<float> gates;
  for (std::size_t i = 0; i < routing.gates.size(); ++i) {
    if (routing.ids[i] != kNotRouted) {
      gates.push_back(std::abs(routing.gates[i]));
    }
  }
  const auto half = gates.begin() + static_cast<std::ptrdiff_t>(gates.size() / 2);
  std::nth_element(gates.begin(), half, gates.end(), std::greater<>());
  const double top = std::accumulate(gates.begin(), half, 0.0);
  const double all = std::accumulate(half, gates.end(), top);
  return all > 0 ? top / all : 0;
}

LayerSummary summarise_layer(const Trace& trace, int layer, int ranks) {
  const Info& info = trace.info();
  LayerSummary out;
  out.layer = layer;
  out.expert_imbalance = out.rank_imbalance = 0;
  Loads all(static_cast<std::size_t>(info.experts), 0), before;
  for (int s = 0; s < info.steps; ++s) {
    const Routing routing = trace.read(s, layer);
    const Loads loads = pairs_per_expert(routing, info.experts);
    const std::int64_t pairs = sum_of(loads);
    out.tokens += routing.tokens;
    out.pairs += pairs;
    out.not_routed += routing.tokens * info.top_k - pairs;
    out.expert_imbalance += greatest_over_mean(loads);
    out.rank_imbalance += ranks > 0 ? greatest_over_mean(per_rank(loads, ranks)) : 1.0;
    out.idle_experts += static_cast<double>(std::count(loads.begin(), loads.end(), 0));
    out.top_half_gates += top_half(routing);
    if (s > 0) {
      out.drift += distance(before, loads) / (info.steps - 1);
    } else if (info.steps == 1) {
      const std::int64_t half = routing.tokens / 2;
      out.drift = distance(pairs_per_expert(slice(routing, 0, half), info.experts),
                           pairs_per_expert(slice(routing, half, routing.tokens), info.experts));
    }
    std::transform(all.begin(), all.end(), loads.begin(), all.begin(), std::plus<>());
    before = loads;
  }
  for (double* mean :
       {&out.expert_imbalance, &out.rank_imbalance, &out.idle_experts, &out.top_half_gates}) {
    *mean /= info.steps;
  }
  for (const std::int64_t pairs : all) {
    out.heat.push_back(out.pairs == 0 ? 0.0
                                      : static_cast<double>(pairs) * info.experts /
                                            static_cast<double>(out.pairs));
  }
  return out;
}

}  // namespace

Summary summarise(const Trace& trace, int ranks) {
  LRMOE_ASSERT(ranks >= 0, "ranks below 0");
  Summary summary;
  summary.file = trace.name();
  summary.info = trace.info();
  summary.ranks = ranks;
  summary.bytes = trace.bytes();
  summary.between_halves = trace.info().steps == 1;
  summary.sources = summary.scores = true;
  for (int l = 0; l < trace.info().layers; ++l) {
    summary.layers.push_back(summarise_layer(trace, l, ranks));
    for (int s = 0; s < trace.info().steps; ++s) {
      summary.sources = summary.sources && trace.has_sources(s, l);
      summary.scores = summary.scores && trace.has_scores(s, l);
    }
  }
  return summary;
}

}  // namespace lrmoe::trace
