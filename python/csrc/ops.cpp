// The torch operators of the Python package: the routed experts with their gradient,
// and the layers' states.
//
// A forward pass leaves an ExpertsState for its backward pass. To autograd it is a
// tensor of one number, the *token*, whose memory owns the state: what saves, drops or
// computes tensors again (checkpointing, compiled graphs) does so with the state, and
// the state's memory is free when nobody holds the token any more.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "lrmoe/moe/experts_state.h"
#include "python/csrc/deliver.h"
#include "python/csrc/layer_state.h"
#include "python/csrc/translated.h"

namespace lrmoe::python {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Pending {
  c10::intrusive_ptr<moe::ExpertsState> experts;
  std::shared_ptr<LayerState> layer;
  Pass pass = Pass::whole;
};

// The states that a backward pass may still come for, by token.
class PendingPasses {
 public:
  static PendingPasses& instance() {
    static PendingPasses passes;
    return passes;
  }

  at::Tensor add(std::shared_ptr<Pending> pending) {
    const std::lock_guard lock(mutex_);
    auto* number = new std::int64_t(next_++);
    passes_.emplace(*number, std::move(pending));
    return at::from_blob(
        number, {1},
        [this](void* data) {
          auto* mine = static_cast<std::int64_t*>(data);
          remove(*mine);
          delete mine;
        },
        at::TensorOptions().dtype(at::kLong));
  }

  std::shared_ptr<Pending> get(const at::Tensor& token) const {
    const std::lock_guard lock(mutex_);
    const auto found = passes_.find(token.item<std::int64_t>());
    TORCH_CHECK(found != passes_.end(),
                "[experts] what the forward pass kept is gone: its saved tensors were copied "
                "(save_on_cpu or the like), which the lrmoe experts do not support");
    return found->second;
  }

 private:
  void remove(std::int64_t number) {
    std::shared_ptr<Pending> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    const auto found = passes_.find(number);
    if (found != passes_.end()) {
      last = std::move(found->second);
      passes_.erase(found);
    }
  }

  mutable std::mutex mutex_;
  std::int64_t next_ = 1;
  std::unordered_map<std::int64_t, std::shared_ptr<Pending>> passes_;
};

void check_arguments(const at::Tensor& x, const at::Tensor& ids, const at::Tensor& gates,
                     const at::Tensor& gate_up, const at::Tensor& down) {
  TORCH_CHECK_VALUE(
      x.dim() == 2 && ids.dim() == 2 && gates.sizes() == ids.sizes() && ids.size(0) == x.size(0),
      "[experts] x must be [T, d] and ids and gates [T, k], not ", x.sizes(), ", ", ids.sizes(),
      " and ", gates.sizes());
  TORCH_CHECK_VALUE(gate_up.dim() == 3 && down.dim() == 3 && gate_up.size(0) == down.size(0) &&
                        gate_up.size(1) == 2 * down.size(2) && gate_up.size(2) == x.size(1) &&
                        down.size(1) == x.size(1),
                    "[experts] gate_up must be [E, 2n, ", x.size(1), "] and down [E, ", x.size(1),
                    ", n], not ", gate_up.sizes(), " and ", down.sizes());
  TORCH_CHECK_VALUE(x.device().is_cpu() && gate_up.device().is_cpu() && down.device().is_cpu(),
                    "[experts] the lrmoe experts run on the CPU so far, not on ", x.device());
  const auto dtype = x.scalar_type();
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
                    "[experts] x must be float32, bfloat16 or float64, not ", dtype);
}

// x is in the dtype of the computation; weights in another one are cast.
std::tuple<at::Tensor, at::Tensor> experts_forward_op(const at::Tensor& x, const at::Tensor& ids,
                                                      const at::Tensor& gates,
                                                      const at::Tensor& gate_up,
                                                      const at::Tensor& down, std::int64_t number,
                                                      std::int64_t pass_number, bool backward) {
  return translated([&] {
    const at::NoGradGuard below_autograd;
    check_arguments(x, ids, gates, gate_up, down);
    auto pending = std::make_shared<Pending>();
    pending->layer = LayerRegistry::instance().get(number);
    pending->pass = static_cast<Pass>(pass_number);
    LayerState& layer = *pending->layer;
    TORCH_CHECK_VALUE(gate_up.size(0) == layer.placement().cols, "[experts] the layer has ",
                      layer.placement().cols, " slots, and the weights are of ", gate_up.size(0));
    if (backward && pending->pass == Pass::train && !layer.delivers()) {
      layer.see_weights(gate_up, down);
    }
    pending->experts = c10::make_intrusive<moe::ExpertsState>();
    moe::ExpertsState& state = *pending->experts;
    state.call = layer.call(ids, gates, backward, pending->pass);
    state.slots.placement = layer.placement();
    state.slots.rank = layer.communicator().rank();
    state.slots.gate_up = gate_up.detach().to(x.scalar_type());
    state.slots.down = down.detach().to(x.scalar_type());
    state.top_k = ids.size(1);
    at::Tensor out = moe::experts_forward(state, x, gates);
    return std::make_tuple(std::move(out), backward
                                               ? PendingPasses::instance().add(std::move(pending))
                                               : at::zeros({1}, at::kLong));
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> experts_backward_op(
    const at::Tensor& delta, const at::Tensor& token, const at::Tensor& x, const at::Tensor& gates,
    const at::Tensor& gate_up, const at::Tensor& down) {
  (void)x;  // the state has it; here so that the shapes can be told from the arguments
  return translated([&] {
    const at::NoGradGuard below_autograd;
    const auto pending = PendingPasses::instance().get(token);
    moe::ExpertsState& state = *pending->experts;
    TORCH_CHECK(state.x.defined(),
                "[experts] the backward pass runs once per forward pass: retain_graph does not "
                "keep what the lrmoe experts need");
    moe::ExpertsGradients g = moe::experts_backward(state, delta.contiguous());
    if (pending->pass == Pass::train) {
      pending->layer->count(state.call);
    }
    state.slots.gate_up = state.slots.down = at::Tensor();
    return std::make_tuple(g.x, g.gates.to(gates.scalar_type()),
                           g.gate_up.to(gate_up.scalar_type()), g.down.to(down.scalar_type()));
  });
}

auto forward_op() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lrmoe::experts_forward", "")
                             .typed<decltype(experts_forward_op)>();
  return op;
}
auto backward_op() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lrmoe::experts_backward", "")
                             .typed<decltype(experts_backward_op)>();
  return op;
}

class ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& ids,
                            const at::Tensor& gates, const at::Tensor& gate_up,
                            const at::Tensor& down, std::int64_t layer, std::int64_t pass) {
    auto [out, token] = forward_op().call(x, ids, gates, gate_up, down, layer, pass, true);
    ctx->save_for_backward({token, x, gates, gate_up, down});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled() || !grads[0].requires_grad(),
                "[experts] the lrmoe experts have no second derivative");
    const auto saved = ctx->get_saved_variables();
    auto [x, gates, gate_up, down] =
        backward_op().call(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4]);
    return {x, {}, gates, gate_up, down, {}, {}};
  }
};

// o [T, d] in x's dtype; see python/lrmoe/ops.py.
at::Tensor experts_op(const at::Tensor& x, const at::Tensor& ids, const at::Tensor& gates,
                      const at::Tensor& gate_up, const at::Tensor& down, std::int64_t layer,
                      std::int64_t pass) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor p = gates.to(wide);
  const bool backward =
      at::GradMode::is_enabled() &&
      (x.requires_grad() || p.requires_grad() || gate_up.requires_grad() || down.requires_grad());
  if (backward) {
    return ExpertsFunction::apply(x, ids, p, gate_up, down, layer, pass);
  }
  return std::get<0>(forward_op().call(x, ids, p, gate_up, down, layer, pass, false));
}

// The owners' weights to the placement in force, and gradients back to the owners.
std::tuple<at::Tensor, at::Tensor> deliver_op(const at::Tensor& gate_up, const at::Tensor& down,
                                              std::int64_t number, bool train) {
  return translated([&] {
    const auto layer = LayerRegistry::instance().get(number);
    if (train) {
      layer->see_weights(gate_up, down);
    }
    return std::make_tuple(deliver(*layer, gate_up), deliver(*layer, down));
  });
}

std::tuple<at::Tensor, at::Tensor> deliver_backward_op(const at::Tensor& gate_up,
                                                       const at::Tensor& down,
                                                       std::int64_t number) {
  return translated([&] {
    const auto layer = LayerRegistry::instance().get(number);
    return std::make_tuple(collect(*layer, gate_up), collect(*layer, down));
  });
}

class DeliverFunction : public torch::autograd::Function<DeliverFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& gate_up,
                               const at::Tensor& down, std::int64_t layer, bool train) {
    ctx->saved_data["layer"] = layer;
    ctx->set_materialize_grads(true);
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("lrmoe::deliver_forward", "")
                               .typed<decltype(deliver_op)>();
    auto [slots_gate_up, slots_down] = op.call(gate_up, down, layer, train);
    return {slots_gate_up, slots_down};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("lrmoe::deliver_backward", "")
                               .typed<decltype(deliver_backward_op)>();
    auto [gate_up, down] = op.call(grads[0], grads[1], ctx->saved_data["layer"].toInt());
    return {gate_up, down, {}, {}};
  }
};

std::tuple<at::Tensor, at::Tensor> deliver_weights_op(const at::Tensor& gate_up,
                                                      const at::Tensor& down, std::int64_t layer,
                                                      bool train) {
  auto out = DeliverFunction::apply(gate_up, down, layer, train);
  return {out[0], out[1]};
}

// The expert in each of this rank's slots: of what it owns, or holds now; -1: none.
std::vector<std::int64_t> layer_experts(std::int64_t number, bool owned) {
  return translated([&] {
    const auto layer = LayerRegistry::instance().get(number);
    const auto row =
        (owned ? layer->owned() : layer->placement()).row(layer->communicator().rank());
    return std::vector<std::int64_t>(row.begin(), row.end());
  });
}

std::int64_t layer_new(const std::string& settings) {
  return translated([&] {
    return LayerRegistry::instance().add(
        std::make_shared<LayerState>(nlohmann::json::parse(settings)));
  });
}

void layer_configure(std::int64_t layer, const std::string& options) {
  translated([&] {
    LayerRegistry::instance().get(layer)->configure(nlohmann::json::parse(options));
    return 0;
  });
}

std::string layer_counts(std::int64_t layer) {
  return translated([&] {
    const LayerCounts c = LayerRegistry::instance().get(layer)->take_counts();
    return nlohmann::json{{"passes", c.passes},
                          {"pairs", c.pairs},
                          {"kept", c.kept},
                          {"added_variance", c.added_variance},
                          {"total_variance", c.total_variance},
                          {"demand", c.demand},
                          {"forward_load", c.forward_load},
                          {"backward_load", c.backward_load}}
        .dump();
  });
}

void layer_step(std::int64_t layer, std::int64_t step) {
  translated([&] {
    LayerRegistry::instance().get(layer)->set_step(step);
    return 0;
  });
}

at::Tensor layer_state(std::int64_t layer) {
  return translated([&] { return LayerRegistry::instance().get(layer)->state(); });
}

void layer_restore(std::int64_t layer, const at::Tensor& state) {
  translated([&] {
    LayerRegistry::instance().get(layer)->restore(state);
    return 0;
  });
}

void layer_free(std::int64_t layer) {
  LayerRegistry::instance().remove(layer);
}

}  // namespace

TORCH_LIBRARY(lrmoe, m) {
  m.def(
      "experts_forward(Tensor x, Tensor ids, Tensor gates, Tensor gate_up, Tensor down, int layer, "
      "int mode, bool backward) -> (Tensor, Tensor)");
  m.def(
      "experts_backward(Tensor delta, Tensor token, Tensor x, Tensor gates, Tensor gate_up, "
      "Tensor down) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "experts(Tensor x, Tensor ids, Tensor gates, Tensor gate_up, Tensor down, int layer, "
      "int mode) -> Tensor");
  m.impl("experts", experts_op);
  m.def("deliver_forward(Tensor gate_up, Tensor down, int layer, bool train) -> (Tensor, Tensor)");
  m.def("deliver_backward(Tensor gate_up, Tensor down, int layer) -> (Tensor, Tensor)");
  m.def("deliver(Tensor gate_up, Tensor down, int layer, bool train) -> (Tensor, Tensor)");
  m.impl("deliver", deliver_weights_op);
  m.def("layer_experts(int layer, bool owned) -> int[]", layer_experts);
  m.def("layer_new(str settings) -> int", layer_new);
  m.def("layer_configure(int layer, str options) -> ()", layer_configure);
  m.def("layer_counts(int layer) -> str", layer_counts);
  m.def("layer_step(int layer, int step) -> ()", layer_step);
  m.def("layer_state(int layer) -> Tensor", layer_state);
  m.def("layer_restore(int layer, Tensor state) -> ()", layer_restore);
  m.def("layer_free(int layer) -> ()", layer_free);
}

// Differentiable through `experts` alone.
TORCH_LIBRARY_IMPL(lrmoe, Autograd, m) {
  m.impl("experts_forward", torch::CppFunction::makeFallthrough());
  m.impl("experts_backward", torch::CppFunction::makeFallthrough());
  m.impl("deliver_forward", torch::CppFunction::makeFallthrough());
  m.impl("deliver_backward", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(lrmoe, CPU, m) {
  m.impl("experts_forward", experts_forward_op);
  m.impl("experts_backward", experts_backward_op);
  m.impl("deliver_forward", deliver_op);
  m.impl("deliver_backward", deliver_backward_op);
}

}  // namespace lrmoe::python
