// Planning, replay and estimates for Python: arrays in, JSON out (python/lrmoe/planning.py).
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/plan/json.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/replay/estimate.h"
#include "lrmoe/replay/memory.h"
#include "lrmoe/replay/report.h"
#include "lrmoe/train/config.h"
#include "python/csrc/translated.h"

namespace lrmoe::python {
namespace {

using Json = nlohmann::json;

template <class T>
std::vector<T> values(const at::Tensor& tensor, at::ScalarType dtype) {
  const at::Tensor flat = tensor.to(at::kCPU, dtype).reshape({-1}).contiguous();
  const auto* data = flat.const_data_ptr<T>();
  return {data, data + flat.numel()};
}

plan::StrategyOptions strategy_of(const std::string& spec) {
  return train::with_strategy({}, spec).strategy;
}

plan::Counts counts_of(const at::Tensor& demand) {
  plan::Counts counts(static_cast<int>(demand.size(0)), static_cast<int>(demand.size(1)));
  counts.values = values<std::int32_t>(demand, at::kInt);
  return counts;
}

plan::Placement placement_of(const Json& rows, const plan::Cluster& cluster) {
  plan::Placement placement(cluster.ranks, cluster.slots, -1);
  if (rows.size() != static_cast<std::size_t>(cluster.ranks)) {
    throw InputError("[plan] a placement has a row for each of the " +
                     std::to_string(cluster.ranks) + " ranks, not " + std::to_string(rows.size()));
  }
  for (int r = 0; r < cluster.ranks; ++r) {
    const auto row = rows[static_cast<std::size_t>(r)].get<std::vector<std::int32_t>>();
    if (row.size() != static_cast<std::size_t>(cluster.slots)) {
      throw InputError("[plan] a placement has " + std::to_string(cluster.slots) +
                       " slots in a row, not " + std::to_string(row.size()));
    }
    for (const auto expert : row) {
      if (expert < -1 || expert >= cluster.experts) {
        throw InputError("[plan] a placement holds experts from 0 to " +
                         std::to_string(cluster.experts - 1) + ", or -1 for none, not " +
                         std::to_string(expert));
      }
    }
    std::copy(row.begin(), row.end(), placement.row(r).begin());
  }
  return placement;
}

std::string plan_op(const at::Tensor& demand, const std::string& text) {
  return translated([&] {
    const Json settings = Json::parse(text);
    const plan::StrategyOptions options = strategy_of(settings.at("strategy"));
    const auto strategy = plan::make_strategy(options);
    const int experts = static_cast<int>(demand.size(1)), ranks = static_cast<int>(demand.size(0));
    const plan::Cluster cluster{ranks, experts,
                                replay::slots_for(*strategy, ranks, settings.at("slots"), experts),
                                settings.at("top_k"), settings.at("ranks_per_node")};
    plan::check_cluster(cluster);
    plan::RouteInput input{cluster, counts_of(demand), {}, false};
    for (const auto count : input.demand.values) {
      if (count < 0) {
        throw InputError("[plan] the demand counts pairs, 0 or more, not " + std::to_string(count));
      }
    }
    const Stopwatch watch;
    input.placement =
        settings.contains("placement")
            ? placement_of(settings.at("placement"), cluster)
            : strategy->place(cluster, input.demand, strategy->initial(cluster), nullptr);
    const double draw = settings.at("draw");
    input.draw = static_cast<std::int64_t>(draw * (std::int64_t{1} << plan::kQuotaBits));
    const plan::Plan planned = strategy->route(input);
    const double seconds = watch.seconds();
    plan::check_plan(planned);
    return plan::to_json(planned, seconds).dump();
  });
}

std::string replay_op(const at::Tensor& ids, const at::Tensor& gates,
                      const std::optional<at::Tensor>& scores,
                      const std::optional<at::Tensor>& sources, const std::string& text) {
  return translated([&] {
    const Json settings = Json::parse(text);
    trace::Info info;
    info.model = info.source = "arrays";
    info.steps = static_cast<int>(ids.size(0));
    info.layers = static_cast<int>(ids.size(1));
    info.top_k = static_cast<int>(ids.size(3));
    info.experts = settings.at("experts");
    std::vector<trace::Routing> routing;
    for (int step = 0; step < info.steps; ++step) {
      for (int layer = 0; layer < info.layers; ++layer) {
        trace::Routing one;
        one.tokens = ids.size(2);
        one.top_k = info.top_k;
        const auto of = [&](const at::Tensor& t) { return t.select(0, step).select(0, layer); };
        one.ids = values<std::int32_t>(of(ids), at::kInt);
        one.gates = values<float>(of(gates), at::kFloat);
        if (scores) {
          one.scores = values<float>(of(*scores), at::kFloat);
        }
        if (sources) {
          one.sources = values<std::int32_t>(of(*sources), at::kInt);
        }
        routing.push_back(std::move(one));
      }
    }
    replay::Options options;
    options.ranks = settings.at("ranks");
    info.ranks = sources ? options.ranks : 0;
    const trace::Trace trace(info, std::move(routing), "arrays");
    options.slots = settings.at("slots");
    options.clock.profile = cost::find_profile(settings.at("profile").get<std::string>());
    options.clock.shape = cost::find_shape(settings.at("model").get<std::string>(), {});
    options.clock.scale = settings.at("scale");
    options.clock.ranks_per_node = settings.at("ranks_per_node");
    options.placing = info.steps > 1 ? replay::Placing::next_step : replay::Placing::same_step;
    options.seed = settings.at("seed");
    options.chunks = settings.at("chunks");
    for (const std::string& spec : settings.at("strategies").get<std::vector<std::string>>()) {
      options.strategies.push_back({spec, strategy_of(spec), 0, 0});
    }
    return replay::to_json(replay::replay(trace, options)).dump();
  });
}

std::string estimate_op(const std::string& text) {
  return translated([&] {
    const Json settings = Json::parse(text);
    replay::EstimateOptions options;
    options.shape = cost::find_shape(settings.at("model").get<std::string>(), {});
    options.ranks = settings.at("ranks");
    options.slots = settings.at("slots");
    options.tokens = settings.at("tokens");
    options.strategy = strategy_of(settings.at("strategy"));
    options.chunks = settings.at("chunks");
    options.imbalance = settings.at("imbalance");
    options.budget = settings.at("budget");
    options.layers_in_flight = settings.at("layers_in_flight");
    return replay::to_json(replay::estimate(options)).dump();
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(lrmoe, m) {
  m.def("plan(Tensor demand, str settings) -> str", plan_op);
  m.def("replay(Tensor ids, Tensor gates, Tensor? scores, Tensor? sources, str settings) -> str",
        replay_op);
  m.def("estimate(str settings) -> str", estimate_op);
}

}  // namespace lrmoe::python
