#include "lrmoe/plan/strategy.h"

#include <algorithm>
#include <array>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/eplb.h"
#include "lrmoe/plan/fixed.h"
#include "lrmoe/plan/lrmoe.h"
#include "lrmoe/plan/symi.h"

namespace lrmoe::plan {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<const Strategy> (*make)(const StrategyOptions&);
  bool selects = false;
};

constexpr std::array kStrategies = {
    Entry{"fixed", make_fixed}, Entry{"fixed-capacity", make_fixed_capacity},
    Entry{"symi", make_symi},   Entry{"symi-sampled", make_symi_sampled, true},
    Entry{"eplb", make_eplb},   Entry{"lrmoe", make_lrmoe, true},
};

}  // namespace

RankPlan Strategy::route_rank(const RouteInput& input, int rank, RouteScratch&) const {
  return part_of(route(input), rank);
}

Activations activations_of(const StrategyOptions& options) {
  const bool left_out =
      leaves_out(options.lrmoe) && std::ranges::any_of(kStrategies, [&](const Entry& entry) {
        return entry.selects && entry.name == options.name;
      });
  return options.lrmoe.activations.value_or(left_out ? Activations::recompute : Activations::keep);
}

std::unique_ptr<const Strategy> make_strategy(const StrategyOptions& options) {
  std::string known;
  for (const Entry& entry : kStrategies) {
    if (entry.name == options.name) {
      StrategyOptions settled = options;
      settled.lrmoe.activations = activations_of(options);
      return entry.make(settled);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw InputError("[strategy] there is no strategy \"" + options.name +
                   "\"; those that exist: " + known);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kStrategies) {
    names.emplace_back(entry.name);
  }
  return names;
}

void check_cluster(const Cluster& cluster) {
  const auto positive = [](const char* what, int value) {
    if (value < 1) {
      throw InputError("[cluster] " + std::string(what) + " must be 1 or more, not " +
                       std::to_string(value));
    }
  };
  positive("ranks", cluster.ranks);
  positive("experts", cluster.experts);
  positive("slots", cluster.slots);
  positive("top_k", cluster.top_k);
  if (cluster.ranks_per_node < 0) {
    throw InputError("[cluster] ranks_per_node must be 0 (one node) or more, not " +
                     std::to_string(cluster.ranks_per_node));
  }
  if (cluster.top_k > cluster.experts) {
    throw InputError("[cluster] top_k " + std::to_string(cluster.top_k) + " is more than the " +
                     std::to_string(cluster.experts) + " experts; it must be at most " +
                     std::to_string(cluster.experts));
  }
  if (std::int64_t{cluster.ranks} * cluster.slots < cluster.experts) {
    const int least = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
    throw InputError("[cluster] " + std::to_string(cluster.ranks) + " ranks with " +
                     std::to_string(cluster.slots) + " slots each cannot hold " +
                     std::to_string(cluster.experts) + " experts; slots must be at least " +
                     std::to_string(least));
  }
}

}  // namespace lrmoe::plan
