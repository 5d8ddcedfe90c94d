// The rules of a trace's figures and values.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {
namespace {

void check_range(const std::string& where, const char* what, std::int64_t value, std::int64_t low,
                 std::int64_t high) {
  if (value < low || value > high) {
    throw InputError(where + ": " + what + " = " + std::to_string(value) + "; it takes " +
                     std::to_string(low) + " to " + std::to_string(high));
  }
}

/// "'x': tensor 's0.l3.ids', token 7: "
std::string place(const std::string& where, const std::string& prefix, const char* tensor,
                  std::size_t token) {
  return where + ": tensor '" + prefix + tensor + "', token " + std::to_string(token) + ": ";
}

void check_size(const std::string& where, const std::string& prefix, const char* tensor,
                std::size_t has, std::size_t wanted) {
  if (has != wanted) {
    throw InputError(where + ": tensor '" + prefix + tensor + "' has " + std::to_string(has) +
                     " values where " + std::to_string(wanted) + " are wanted");
  }
}

void check_finite(const std::vector<float>& values, const std::string& where,
                  const std::string& prefix, const char* tensor, std::size_t k) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      throw InputError(place(where, prefix, tensor, i / k) + "value " + std::to_string(i % k) +
                       " is not a finite number");
    }
  }
}

}  // namespace

void check_info(const Info& info, const std::string& where) {
  check_range(where, "num_experts", info.experts, 1, kMostExperts);
  check_range(where, "top_k", info.top_k, 1, info.experts);
  check_range(where, "num_steps", info.steps, 1, 1'000'000'000);
  check_range(where, "num_layers", info.layers, 1, kMostLayers);
  check_range(where, "hidden", info.hidden, 0, kMostWidth);
  check_range(where, "expert_width", info.expert_width, 0, kMostWidth);
  check_range(where, "ranks", info.ranks, 0, kMostRanks);
  check_range(where, "first_step", info.first, 0, std::int64_t{1} << 60);
}

void check_routing(const Routing& routing, const Info& info, const std::string& where,
                   const std::string& prefix) {
  const auto tokens = static_cast<std::size_t>(routing.tokens);
  const auto k = static_cast<std::size_t>(info.top_k);
  if (routing.top_k != info.top_k) {
    throw InputError(where + ": tensor '" + prefix + "ids' has " + std::to_string(routing.top_k) +
                     " experts a token, but top_k = " + std::to_string(info.top_k));
  }
  check_size(where, prefix, "ids", routing.ids.size(), tokens * k);
  check_size(where, prefix, "gates", routing.gates.size(), tokens * k);
  // The last token that named an expert.
  std::vector<std::size_t> named(static_cast<std::size_t>(info.experts), tokens);
  for (std::size_t i = 0; i < routing.ids.size(); ++i) {
    const std::int32_t id = routing.ids[i];
    if (id == kNotRouted) {
      continue;
    }
    if (id < 0 || id >= info.experts) {
      throw InputError(place(where, prefix, "ids", i / k) + "expert " + std::to_string(id) +
                       " is none of the " + std::to_string(info.experts) + " (from 0)");
    }
    std::size_t& last = named[static_cast<std::size_t>(id)];
    if (last == i / k) {
      throw InputError(place(where, prefix, "ids", i / k) + "expert " + std::to_string(id) +
                       " stands twice");
    }
    last = i / k;
  }
  check_finite(routing.gates, where, prefix, "gates", k);
  if (!routing.sources.empty()) {
    check_size(where, prefix, "source", routing.sources.size(), tokens);
    const std::int32_t most = info.ranks > 0 ? info.ranks : kMostRanks;
    for (std::size_t t = 0; t < tokens; ++t) {
      if (routing.sources[t] < 0 || routing.sources[t] >= most) {
        throw InputError(place(where, prefix, "source", t) + "rank " +
                         std::to_string(routing.sources[t]) + " is not from 0 to " +
                         std::to_string(most - 1));
      }
    }
  }
  if (!routing.scores.empty()) {
    check_size(where, prefix, "scores", routing.scores.size(), tokens * k);
    check_finite(routing.scores, where, prefix, "scores", k);
  }
}

}  // namespace lrmoe::trace
