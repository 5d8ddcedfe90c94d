#include "lrmoe/train/replica.h"

#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/config_freeze.h"

namespace lrmoe::train {

namespace {

at::ScalarType scalar_type(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

// A frozen router's bias stays, too.
model::ModelConfig model_of(const Config& config) {
  model::ModelConfig model = config.model;
  if (!trains(config, "router")) {
    model.bias_rate = 0;
  }
  return model;
}

model::Transformer make_model(const Config& config, const plan::Strategy& strategy,
                              comm::Communicator& communicator) {
  return {model_of(config),
          config.slots(),
          communicator,
          strategy,
          config.train.seed,
          scalar_type(config.train.dense()),
          ranks_per_node(config),
          config.model_path.empty() ? model::Start::random : model::Start::unset,
          scalar_type(config.train.expert())};
}

// The parameters that the run trains; the others get no gradients.
std::vector<model::Parameter> trained(const model::Transformer& model, const Config& config) {
  std::vector<model::Parameter> found;
  for (const model::Parameter& parameter : model.parameters()) {
    const bool trains_it = trains(config, part_of(parameter.name));
    parameter.value.set_requires_grad(trains_it);
    if (trains_it) {
      found.push_back(parameter);
    }
  }
  return found;
}

}  // namespace

Replica::Replica(const Config& config, const plan::Strategy& strategy_,
                 comm::Communicator& communicator_, const model::HfWeights* weights)
    : communicator(communicator_),
      strategy(strategy_),
      model(make_model(config, strategy_, communicator_)),
      dense(trained(model, config)),
      places_in_step(strategy_.selection() != nullptr &&
                     strategy_.selection()->placing == plan::Placing::in_step) {
  const optim::ShardMap map{communicator.size(), config.model.experts,
                            std::int64_t{3} * config.model.hidden * config.model.expert_width,
                            strategy.owns_experts()};
  const bool trains_experts = trains(config, "experts");
  if (weights != nullptr) {
    weights->load_dense(model);
  }
  for (std::size_t i = 0; i < model.moe_layers().size(); ++i) {
    moe::MoeLayer& layer = *model.moe_layers()[i];
    std::function<at::Tensor(int)> initial;
    if (config.model_path.empty()) {
      initial = [&](int expert) { return model.initial_expert(i, expert); };
    }
    optim::ExpertOptimizer& optimizer =
        experts.emplace_back(map, communicator, initial, at::kFloat, trains_experts);
    if (weights != nullptr) {
      optimizer.fill([&](int expert, std::int64_t begin, std::int64_t end) {
        return weights->expert(model.layer_of()[i], expert, begin, end);
      });
    }
    layer.slots().gate_up.set_requires_grad(trains_experts);
    layer.slots().down.set_requires_grad(trains_experts);
    optimizer.deliver(plan::Placement(layer.slots().placement), layer.slots());
    if (places_in_step) {
      layer.place_in_step([this, i](const plan::Placement& next) {
        experts[i].deliver(next, model.moe_layers()[i]->slots());
      });
    }
    last_demand.emplace_back(communicator.size(), config.model.experts);
  }
}

}  // namespace lrmoe::train
