#include "lrmoe/train/step_clock.h"

#include <algorithm>
#include <utility>

#include "lrmoe/train/config_clock.h"

namespace lrmoe::train {
namespace {

MeasuredSeconds measured_of(const StepMetrics& metrics) {
  return {metrics.seconds,
          metrics.moe_seconds,
          metrics.moe.moe_forward_seconds,
          metrics.moe.moe_backward_seconds,
          metrics.moe.moe_exchange_seconds,
          metrics.moe.moe_update_seconds};
}

void set_seconds(MoeMetrics& metrics, const cost::Seconds& seconds) {
  metrics.moe_forward_seconds = seconds.forward;
  metrics.moe_backward_seconds = seconds.backward;
  metrics.moe_exchange_seconds = seconds.exchange;
  metrics.moe_update_seconds = seconds.update;
}

}  // namespace

StepClock::StepClock(const Config& config)
    : name_(clock_name(config)), options_(virtual_clock(config)), rest_(rest_of_model(config)) {
  const model::ModelConfig& m = config.model;
  rest_work_.dense_layers = static_cast<int>(m.dense_layers.size());
  rest_work_.moe_layers = m.layers - rest_work_.dense_layers;
  rest_work_.sequence = m.sequence;
}

double StepClock::rest_seconds(const GatheredWork& work, cost::RestWork rest) const {
  if (options_->profile.measured) {
    return work.rest_cpu_seconds();
  }
  std::vector<std::int64_t> tokens;
  for (const std::vector<cost::LayerWork>& micro : work.layers.front()) {
    tokens.push_back(0);
    for (const cost::LayerWork& rank : micro) {
      tokens.back() = std::max(tokens.back(), rank.tokens);
    }
  }
  rest.ranks = static_cast<int>(work.cpu.size());
  return cost::price_rest(rest, tokens, rest_, *options_).total();
}

void StepClock::price(GatheredWork work, std::vector<cost::OptimizerWork> optimizer,
                      StepMetrics& metrics) const {
  if (!options_ || work.layers.empty()) {
    return;
  }
  metrics.clock = name_;
  metrics.measured = measured_of(metrics);
  const double rest = rest_seconds(work, rest_work_);
  const cost::StepCost cost =
      cost::price_step({std::move(work.layers), std::move(optimizer)}, *options_);
  const cost::Seconds& all = cost.total.seconds;
  set_seconds(metrics.moe, all);
  for (std::size_t i = 0; i < metrics.layers.size(); ++i) {
    set_seconds(metrics.layers[i], cost.layers[i].seconds);
  }
  metrics.moe_seconds = all.total();
  metrics.seconds = all.total() + rest;
  metrics.parts =
      PricedParts{all.plan, all.statistics, all.select, all.weight_exchange, all.scores, rest};
}

}  // namespace lrmoe::train
