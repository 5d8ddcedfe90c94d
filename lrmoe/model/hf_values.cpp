// Where an export finds weights and gradients: dense ones here, experts at the ranks
// that hold them.
#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "lrmoe/model/hf_export.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::model {

namespace {

// One slot's [gate_up | down], flat.
at::Tensor flat(const at::Tensor& gate_up, const at::Tensor& down, int slot) {
  return at::cat({gate_up.select(0, slot).flatten(), down.select(0, slot).flatten()});
}

// The rows that the ranks have of an expert (one per instance, the first only where
// `all` is false), summed at rank 0; elsewhere undefined.
at::Tensor at_first_rank(const moe::ExpertSlots& slots, int expert, bool all,
                         const std::function<at::Tensor(int slot)>& row, std::int64_t length,
                         const at::TensorOptions& options, comm::Communicator& communicator) {
  std::vector<std::int64_t> receive(static_cast<std::size_t>(communicator.size()), 0);
  std::vector<std::int64_t> send(receive.size(), 0);
  at::Tensor mine = at::empty({0, length}, options);
  bool found = false;
  for (int r = 0; r < communicator.size(); ++r) {
    for (const int slot : slots.instances(r)) {
      if (slots.placement.at(r, slot) != expert || (found && !all)) {
        continue;
      }
      found = true;
      if (r == communicator.rank()) {
        mine = row(slot).to(options.dtype()).view({1, length});
        send[0] = 1;
      }
      if (communicator.rank() == 0) {
        receive[static_cast<std::size_t>(r)] = 1;
      }
    }
  }
  const at::Tensor rows = moe::exchange_rows(communicator, mine, send, receive);
  if (communicator.rank() != 0) {
    return {};
  }
  return rows.size(0) == 1 ? rows.select(0, 0) : rows.sum(0);  // a sum would turn -0 into 0
}

std::int64_t length_of(const Transformer& model) {
  return std::int64_t{3} * model.config().hidden * model.config().expert_width;
}

// Dense parameters and router biases by name.
std::map<std::string, at::Tensor> dense_of(const Transformer& model) {
  std::map<std::string, at::Tensor> values;
  for (const Parameter& parameter : model.parameters()) {
    values[parameter.name] = parameter.value;
  }
  for (std::size_t i = 0; i < model.moe_layers().size(); ++i) {
    const at::Tensor& bias = model.moe_layers()[i]->router_bias;
    if (bias.defined()) {
      values["layers." + std::to_string(model.layer_of()[i]) + ".router_bias"] = bias;
    }
  }
  return values;
}

}  // namespace

HfValues weights_of(const Transformer& model, comm::Communicator& communicator) {
  HfValues values;
  values.dense = [all = dense_of(model)](const std::string& name) { return all.at(name).detach(); };
  values.expert = [&model, &communicator](std::size_t i, int expert) {
    const moe::ExpertSlots& slots = model.moe_layers()[i]->slots();
    return at_first_rank(
        slots, expert, false,
        [&](int slot) { return flat(slots.gate_up.detach(), slots.down.detach(), slot); },
        length_of(model), slots.gate_up.options().requires_grad(false), communicator);
  };
  return values;
}

HfValues gradients_of(const Transformer& model, comm::Communicator& communicator) {
  HfValues values;
  values.dense = [all = dense_of(model), &communicator](const std::string& name) {
    const at::Tensor& value = all.at(name);
    const at::Tensor sum = value.grad().defined() ? value.grad().to(at::kFloat).contiguous().clone()
                                                  : at::zeros(value.sizes(), at::kFloat);
    communicator.all_reduce(moe::buffer(sum), comm::Reduce::sum);
    return sum;
  };
  values.expert = [&model, &communicator](std::size_t i, int expert) {
    const moe::ExpertSlots& slots = model.moe_layers()[i]->slots();
    const auto grad = [](const at::Tensor& t) {
      return t.grad().defined() ? t.grad() : at::zeros_like(t);
    };
    return at_first_rank(
        slots, expert, true,
        [&](int slot) { return flat(grad(slots.gate_up), grad(slots.down), slot); },
        length_of(model), at::TensorOptions(at::kFloat), communicator);
  };
  return values;
}

}  // namespace lrmoe::model
