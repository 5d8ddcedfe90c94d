// Small traces that the replay's tests make themselves.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "lrmoe/base/hash.h"
#include "lrmoe/replay/replay.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::replay {

/// Tokens with distinct random experts, low numbers more often; a different layer and
/// step has other ones. `scores`: positive and uneven.
inline trace::Routing random_routing(std::int64_t tokens, int experts, int top_k,
                                     std::uint64_t seed, bool scores) {
  trace::Routing routing;
  routing.tokens = tokens;
  routing.top_k = top_k;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> chosen;
    for (std::uint64_t i = 0; static_cast<int>(chosen.size()) < top_k; ++i) {
      const std::uint64_t h = hash({seed, static_cast<std::uint64_t>(t), i});
      const auto a = static_cast<std::int32_t>(h % static_cast<std::uint64_t>(experts));
      const auto b = static_cast<std::int32_t>((h >> 32) % static_cast<std::uint64_t>(experts));
      const std::int32_t e = a < b ? a : b;
      bool there = false;
      for (const std::int32_t c : chosen) {
        there = there || c == e;
      }
      if (!there) {
        chosen.push_back(e);
      }
    }
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      const std::uint64_t h = hash({seed, static_cast<std::uint64_t>(t), j, 77});
      routing.ids.push_back(chosen[j]);
      routing.gates.push_back(1.0F / static_cast<float>(2 + j));
      if (scores) {
        routing.scores.push_back(static_cast<float>(1 + h % 1000) / 100.0F);
      }
    }
  }
  return routing;
}

inline trace::Trace random_trace(int steps, int layers, std::int64_t tokens, int experts, int top_k,
                                 bool scores = true) {
  trace::Info info;
  info.model = "test";
  info.source = "made";
  info.experts = experts;
  info.top_k = top_k;
  info.steps = steps;
  info.layers = layers;
  info.hidden = 64;
  info.expert_width = 32;
  std::vector<trace::Routing> routing;
  for (int s = 0; s < steps; ++s) {
    for (int l = 0; l < layers; ++l) {
      routing.push_back(
          random_routing(tokens, experts, top_k, static_cast<std::uint64_t>(100 * s + l), scores));
    }
  }
  return trace::Trace(info, std::move(routing));
}

inline Entry entry(const std::string& name, double ratio = 0.25,
                   plan::Activations activations = plan::Activations::keep) {
  Entry e;
  e.label = name;
  e.options.name = name;
  e.options.lrmoe.ratio = ratio;
  e.options.lrmoe.activations = activations;
  return e;
}

inline Options options(int ranks, std::vector<Entry> strategies) {
  Options o;
  o.ranks = ranks;
  o.strategies = std::move(strategies);
  o.clock.profile = cost::find_profile("h200-ib");
  o.clock.shape = cost::find_shape("qwen3-30b-a3b", {});
  return o;
}

inline std::int64_t sum(const std::vector<std::int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace lrmoe::replay
