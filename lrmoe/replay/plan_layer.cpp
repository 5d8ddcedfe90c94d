#include "lrmoe/replay/plan_layer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "lrmoe/base/error.h"
#include "lrmoe/base/size.h"
#include "lrmoe/base/stopwatch.h"
#include "lrmoe/base/text_table.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/layer.h"
#include "lrmoe/replay/memory.h"

namespace lrmoe::replay {
namespace {

void check_index(const char* what, int index, int count, const trace::Trace& trace) {
  if (index < 0 || index >= count) {
    throw InputError("--" + std::string(what) + " " + std::to_string(index) + ": " + trace.name() +
                     " has " + std::to_string(count) + "; it takes 0 to " +
                     std::to_string(count - 1));
  }
}

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::vector<std::string> load_row(const char* name, const std::vector<std::int64_t>& loads) {
  std::int64_t sum = 0;
  for (const std::int64_t load : loads) {
    sum += load;
  }
  const double mean = static_cast<double>(sum) / static_cast<double>(loads.size());
  return {name, with_commas(*std::min_element(loads.begin(), loads.end())), print("%.1f", mean),
          with_commas(*std::max_element(loads.begin(), loads.end())),
          print("%.4f", plan::imbalance(loads))};
}

/// "home 12.3%, same node 45.6%, elsewhere 42.1%".
std::string travel(const plan::Plan& plan) {
  std::int64_t home = 0, node = 0, all = 0;
  for (const plan::Route& route : plan.forward) {
    all += route.pairs;
    if (route.rank == route.source) {
      home += route.pairs;
    } else if (plan::node_of(plan.cluster, route.rank) ==
               plan::node_of(plan.cluster, route.source)) {
      node += route.pairs;
    }
  }
  const double whole = std::max<double>(1, static_cast<double>(all));
  return print("%.1f%% stay on their rank, %.1f%% on their node", 100.0 * home / whole,
               100.0 * node / whole);
}

std::string instances(const plan::Plan& plan) {
  const auto slots = plan::slots_of_experts(plan.placement, plan.cluster.experts);
  std::size_t used = 0, most = 0, expert = 0;
  for (std::size_t e = 0; e < slots.size(); ++e) {
    used += slots[e].size();
    if (slots[e].size() > most) {
      most = slots[e].size();
      expert = e;
    }
  }
  return std::to_string(used) + " instances of " + std::to_string(slots.size()) +
         " experts; the most, " + std::to_string(most) + ", of expert " + std::to_string(expert);
}

}  // namespace

PlannedLayer plan_layer(const trace::Trace& trace, const PlanOptions& options) {
  const trace::Info& info = trace.info();
  check_index("layer", options.layer, info.layers, trace);
  check_index("step", options.step, info.steps, trace);
  const int placement_step = options.placement_step < 0 ? options.step : options.placement_step;
  check_index("placement-step", placement_step, info.steps, trace);
  const auto strategy = plan::make_strategy(options.strategy);
  LayerSettings settings;
  settings.cluster = {options.ranks, info.experts,
                      slots_for(*strategy, options.ranks, options.slots, info.experts), info.top_k,
                      options.ranks_per_node};
  plan::check_cluster(settings.cluster);
  settings.options = options.strategy.lrmoe;
  settings.chunks = options.chunks;
  settings.draw =
      plan::selection_draw(options.seed, info.first - 1 + options.step, 0, options.layer);

  const auto read = [&](int step) {
    return split_sources(trace.read(step, options.layer), info.experts, options.ranks, info.ranks);
  };
  LayerState state{strategy->initial(settings.cluster), plan::ScoreCurves(info.experts)};
  const Sources before = read(placement_step);
  learn_scores(before, *strategy, state.curves);
  PlannedLayer planned;
  const Stopwatch watch;
  state.placement =
      strategy->place(settings.cluster, before.demand, state.placement, &state.curves);
  planned.place_seconds = watch.seconds();
  planned.plan =
      route_layer(*strategy, state, placement_step == options.step ? before : read(options.step),
                  settings, planned.route_seconds);
  if (options.shape.hidden > 0 && options.shape.width > 0) {
    planned.plan.memory =
        memory_of(planned.plan, memory_model(options.strategy, options.shape, options.scale)).terms;
  }
  plan::check_plan(planned.plan);
  return planned;
}

std::string to_text(const PlannedLayer& planned, const trace::Trace& trace,
                    const PlanOptions& options) {
  const plan::Plan& plan = planned.plan;
  const plan::Cluster& cluster = plan.cluster;
  const std::int64_t routed = plan::total_pairs(plan.demand);
  const std::int64_t kept = plan::total_pairs(plan.quota);
  const std::int64_t dropped = plan::total_pairs(plan.dropped);
  const int placed = options.placement_step < 0 ? options.step : options.placement_step;
  std::string text = trace.name() + ", step " + std::to_string(options.step) + ", layer " +
                     std::to_string(options.layer) + ": " + with_commas(routed) + " pairs of " +
                     std::to_string(cluster.experts) + " experts, top " +
                     std::to_string(cluster.top_k) + "\n" + plan.strategy + " on " +
                     std::to_string(cluster.ranks) + " ranks with " +
                     std::to_string(cluster.slots) + " slots, placement planned on step " +
                     std::to_string(placed) + "\n\n";
  text += aligned({{"pairs on a rank", "least", "mean", "most", "most/mean"},
                   load_row("forward", plan::rank_loads(plan.forward, cluster.ranks)),
                   load_row("backward", plan::rank_loads(plan.backward, cluster.ranks))});
  const double whole = std::max<double>(1, static_cast<double>(routed));
  text += "\nkept " + with_commas(kept) + print(" (%.1f%%)", 100.0 * kept / whole) + ", dropped " +
          with_commas(dropped) + print(", predicted added variance %.3f\n", plan.added_variance) +
          instances(plan) + "\n" + travel(plan) + "\n";
  if (!plan.memory.empty()) {
    const plan::MemoryTerms m = plan::fullest(plan.memory);
    text += "memory of the fullest rank: weights " + print_size(m.weights) + ", gradients " +
            print_size(m.gradients) + ", activations " + print_size(m.activations) + ", buffers " +
            print_size(m.buffers) + ", workspace " + print_size(m.workspace) + "\n";
  }
  text += print("planned in %.3f ms: placement %.3f, route %.3f\n",
                1e3 * (planned.place_seconds + planned.route_seconds), 1e3 * planned.place_seconds,
                1e3 * planned.route_seconds);
  for (const std::string& note : plan.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

}  // namespace lrmoe::replay
