#include "lrmoe/moe/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/moe/experts_state.h"

namespace lrmoe::moe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gates,
                            const at::Tensor& gate_up, const at::Tensor& down,
                            const c10::intrusive_ptr<ExpertsState>& state) {
    const Stopwatch watch;
    at::Tensor out = experts_forward(*state, x, gates);
    if (state->call.backward) {
      // Saved so that a change between the passes is noticed.
      ctx->save_for_backward({gate_up, down});
      ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    }
    state->call.work->forward_seconds += watch.seconds();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ctx->get_saved_variables();
    const auto capsule = ctx->saved_data["state"].toCapsule();
    auto& state = static_cast<ExpertsState&>(*capsule);
    LRMOE_ASSERT(state.x.defined(), "the experts' backward pass runs once per forward pass");
    const Stopwatch watch;
    // Collective even where this rank's output went unused: the others wait for its pairs.
    const at::Tensor delta = grads[0].defined() ? grads[0] : at::zeros_like(state.x);
    ExpertsGradients g = experts_backward(state, delta);
    state.call.work->backward_seconds += watch.seconds();
    return {g.x, g.gates, g.gate_up, g.down, at::Tensor()};
  }
};

}  // namespace

at::Tensor experts(const at::Tensor& x, const at::Tensor& gates, const ExpertSlots& slots,
                   ExpertsCall call) {
  auto state = c10::make_intrusive<ExpertsState>();
  state->call = std::move(call);
  state->slots = slots;
  state->top_k = gates.size(1);
  state->wants_x = x.requires_grad();
  state->wants_gates = gates.requires_grad();
  state->wants_weights = slots.gate_up.requires_grad() || slots.down.requires_grad();
  if (!(state->wants_x || state->wants_gates || state->wants_weights)) {
    state->call.backward = false;  // below everything that is trained
  }
  return ExpertsFunction::apply(x, gates, slots.gate_up, slots.down, state);
}

}  // namespace lrmoe::moe
