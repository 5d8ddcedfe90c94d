#include "lrmoe/train/replica.h"

#include "lrmoe/train/config_clock.h"

namespace lrmoe::train {

namespace {

at::ScalarType scalar_type(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

}  // namespace

Replica::Replica(const Config& config, const plan::Strategy& strategy_,
                 comm::Communicator& communicator_)
    : communicator(communicator_),
      strategy(strategy_),
      model(config.model, config.slots(), communicator_, strategy_, config.train.seed,
            scalar_type(config.train.dtype), ranks_per_node(config)),
      dense(model.parameters()),
      places_in_step(strategy_.selection() != nullptr &&
                     strategy_.selection()->placing == plan::Placing::in_step) {
  const optim::ShardMap map{communicator.size(), config.model.experts,
                            std::int64_t{3} * config.model.hidden * config.model.expert_width,
                            strategy.owns_experts()};
  for (std::size_t i = 0; i < model.moe_layers().size(); ++i) {
    moe::MoeLayer& layer = *model.moe_layers()[i];
    experts.emplace_back(
        map, communicator, [&](int expert) { return model.initial_expert(i, expert); }, at::kFloat);
    experts.back().deliver(plan::Placement(layer.slots().placement), layer.slots());
    if (places_in_step) {
      layer.place_in_step([this, i](const plan::Placement& next) {
        experts[i].deliver(next, model.moe_layers()[i]->slots());
      });
    }
    last_demand.emplace_back(communicator.size(), config.model.experts);
  }
}

}  // namespace lrmoe::train
