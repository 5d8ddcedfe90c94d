#include "lrmoe/train/config_clock.h"

#include <cmath>

#include "lrmoe/base/error.h"
#include "lrmoe/base/size.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {
namespace {

int moe_layers(const model::ModelConfig& m) {
  return m.layers - static_cast<int>(m.dense_layers.size());
}

bool is_measured(const Config& config) {
  return config.clock.profile == "measured";
}

}  // namespace

std::int64_t element_bytes(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? 2 : 4;
}

std::string clock_name(const Config& config) {
  return is_measured(config) ? "measured" : "virtual:" + config.clock.profile;
}

std::string clock_words(const Config& config) {
  std::string words = clock_name(config);
  if (!is_measured(config) && config.clock.shape != "own") {
    words += ", at the dimensions of " + config.clock.shape;
  }
  if (!is_measured(config) && config.clock.scale != 1) {
    const double scale = config.clock.scale;
    const Value printed = scale == std::floor(scale) && scale < 1e15
                              ? Value(static_cast<std::int64_t>(scale))
                              : scale;
    words += ", each token stands for " + print_value(printed) + " tokens";
  }
  return words;
}

std::optional<cost::ClockOptions> virtual_clock(const Config& config) {
  if (is_measured(config)) {
    return {};
  }
  const model::ModelConfig& m = config.model;
  const cost::Shape own{"own",
                        m.hidden,
                        m.expert_width,
                        m.experts,
                        m.top_k,
                        moe_layers(m),
                        element_bytes(config.train.expert())};
  cost::ClockOptions options;
  options.profile = cost::find_profile(config.clock.profile);
  options.shape = cost::find_shape(config.clock.shape, own);
  options.scale = config.clock.scale;
  options.ranks_per_node = config.clock.ranks_per_node;
  return options;
}

cost::Rest rest_of_model(const Config& config) {
  const model::ModelConfig& m = config.model;
  const double d = m.hidden;
  const double q = static_cast<double>(m.heads) * m.width_of_head();
  const double kv = static_cast<double>(m.kv_heads) * m.width_of_head();
  cost::Rest own;
  own.layers = m.layers;
  own.attention = 2 * d * q + 2 * d * kv;
  own.queries = 2 * q;
  own.qkv = 2 * q + 2 * kv;
  own.shared = 3 * d * m.shared_experts * m.expert_width;
  own.dense = 3 * d * m.width_of_dense();
  own.vocabulary = m.vocabulary;
  return cost::find_rest(config.clock.shape, own);
}

int ranks_per_node(const Config& config) {
  const auto clock = virtual_clock(config);
  if (!clock) {
    return 0;
  }
  return clock->ranks_per_node >= 0 ? clock->ranks_per_node : clock->profile.ranks_per_node;
}

plan::StrategyOptions strategy_options(const Config& config) {
  plan::StrategyOptions options = config.strategy;
  if (const auto clock = virtual_clock(config)) {
    options.costs = plan::plan_costs(clock->profile, clock->shape, clock->scale,
                                     config.parallel.ranks, ranks_per_node(config));
  }
  if (!config.memory.budget.empty()) {
    options.memory.bytes = parse_size(config.memory.budget, "[memory] budget");
    if (options.memory.bytes == 0) {
      throw InputError("[memory] budget must be above 0; leave it out for none");
    }
    options.memory.layers = moe_layers(config.model);
    options.memory.model = memory_model(config);
  }
  return options;
}

plan::MemoryModel memory_model(const Config& config) {
  const std::int64_t bytes = element_bytes(config.train.expert());
  plan::MemoryModel model{config.model.hidden,
                          config.model.expert_width,
                          bytes,
                          bytes,
                          4,
                          plan::activations_of(config.strategy)};
  plan::set_scores(model, config.strategy.lrmoe);
  return model;
}

}  // namespace lrmoe::train
