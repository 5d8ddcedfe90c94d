#include "lrmoe/moe/experts.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/moe/dispatch.h"
#include "lrmoe/moe/exchange.h"
#include "lrmoe/moe/grouped.h"

namespace lrmoe::moe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the forward pass leaves for the backward pass, beside the saved inputs.
struct State : torch::CustomClassHolder {
  ExpertsCall call;
  ExpertSlots slots;  // placement and weights in force then
  Dispatch dispatch;
  at::Tensor rows;     // [N', d] x as received
  at::Tensor gate_up;  // [P', 2n] in destination order
  at::Tensor gates;    // [P'] in destination order
  std::vector<std::int64_t> shape;  // of x
};

template <class... Tensors>
std::int64_t bytes_of(const Tensors&... tensors) {
  return (std::int64_t{0} + ... + (tensors.defined() ? static_cast<std::int64_t>(tensors.nbytes()) : 0));
}

std::vector<std::int32_t> narrow_counts(const std::vector<std::int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

std::vector<std::int32_t> group_rows(const std::vector<Group>& groups) {
  std::vector<std::int32_t> rows;
  for (const auto& group : groups) {
    rows.push_back(static_cast<std::int32_t>(group.end - group.begin));
  }
  return rows;
}

// Of what goes to (or comes from) all ranks, the part that leaves this one.
std::int64_t remote(const std::vector<std::int64_t>& counts, int self) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    sum += static_cast<int>(r) == self ? 0 : counts[r];
  }
  return sum;
}

// Exchanges that are timed and counted.
class Wire {
 public:
  Wire(comm::Communicator& communicator, double& seconds) : comm_(communicator), seconds_(seconds) {}

  at::Tensor send(const at::Tensor& rows, const std::vector<std::int64_t>& to,
                  const std::vector<std::int64_t>& from) {
    const Stopwatch watch;
    const at::Tensor out = exchange_rows(comm_, rows, to, from);
    const std::int64_t row_bytes =
        static_cast<std::int64_t>(rows.element_size()) * (rows.dim() > 1 ? rows.size(1) : 1);
    bytes_ += row_bytes * remote(to, comm_.rank());
    seconds_ += watch.seconds();
    return out;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  comm::Communicator& comm_;
  double& seconds_;
  std::int64_t bytes_ = 0;
};

std::int64_t instance_bytes(const ExpertSlots& slots) {
  std::int64_t used = 0;
  for (const auto expert : slots.placement.row(slots.rank)) {
    used += expert >= 0 ? 1 : 0;
  }
  const std::int64_t weights = bytes_of(slots.gate_up, slots.down);
  return 2 * used * weights / slots.gate_up.size(0);  // weights and gradients
}

at::Tensor forward_pass(State& s, const at::Tensor& x, const at::Tensor& gates) {
  cost::LayerWork& work = *s.call.work;
  const int rank = s.slots.rank;
  const plan::Plan& plan = *s.call.plan;
  comm::Communicator& comm = *s.call.communicator;

  const RoutedPairs pairs = route_pairs(s.call.experts, plan.cluster.experts,
                                        routes_of(plan.forward, rank), comm.size());
  {
    const Stopwatch watch;
    s.dispatch = make_dispatch(comm, pairs, x.size(0), plan.cluster.top_k, plan.forward, s.slots);
    work.exchange_seconds += watch.seconds();
  }
  const Dispatch& d = s.dispatch;

  Wire wire(comm, work.exchange_seconds);
  const at::Tensor sent_x = x.index_select(0, d.row_token);
  s.rows = wire.send(sent_x, d.send_rows, d.receive_rows);
  s.gates = wire.send(gates.reshape({-1}).index_select(0, d.pair), d.send_pairs, d.receive_pairs)
                .index_select(0, d.arrival);

  s.gate_up =
      grouped_linear(s.rows.index_select(0, d.row), s.slots.gate_up.detach(), d.groups);
  const at::Tensor y = grouped_linear(gated(s.gate_up), s.slots.down.detach(), d.groups);
  const at::Tensor summed = sum_rows(y, d.row_pairs, d.row_begin, s.gates.index_select(0, d.row_pairs));
  const at::Tensor returned = wire.send(summed, d.receive_rows, d.send_rows);
  at::Tensor out = sum_rows(returned, d.token_rows, d.token_begin, {});

  work.forward_rows = narrow_counts(d.send_rows);
  work.forward_pairs = narrow_counts(d.send_pairs);
  work.forward_gemm_rows = group_rows(d.groups);
  work.combine_rows = narrow_counts(d.send_rows);
  work.forward_bytes = wire.bytes() + d.index_bytes;
  work.memory_peak_bytes =
      instance_bytes(s.slots) +
      bytes_of(sent_x, s.rows, s.gates, s.gate_up, y, summed, returned);
  return out;
}

struct Gradients {
  at::Tensor x, gates, gate_up, down;
};

Gradients backward_pass(State& s, const at::Tensor& delta, std::int64_t top_k) {
  cost::LayerWork& work = *s.call.work;
  const Dispatch& d = s.dispatch;
  const at::Tensor gate_up_weight = s.slots.gate_up.detach();
  const at::Tensor down_weight = s.slots.down.detach();
  const auto slots = gate_up_weight.size(0);

  Wire wire(*s.call.communicator, work.exchange_seconds);
  const at::Tensor sent = delta.index_select(0, d.row_token);
  const at::Tensor delta_rows = wire.send(sent, d.send_rows, d.receive_rows);
  const at::Tensor deltas = delta_rows.index_select(0, d.row);

  const at::Tensor a = gated(s.gate_up);
  const at::Tensor r = grouped_linear_input(deltas, down_weight, d.groups);
  const at::Tensor dp = (r * a).sum(1, false, s.gates.scalar_type());
  const at::Tensor p = s.gates.to(a.scalar_type()).unsqueeze(1);

  Gradients g;
  g.down = grouped_linear_weight(deltas, a * p, slots, d.groups);
  const at::Tensor d_gate_up = gated_backward(r * p, s.gate_up);
  g.gate_up = grouped_linear_weight(d_gate_up, s.rows.index_select(0, d.row), slots, d.groups);
  const at::Tensor dx_pairs = grouped_linear_input(d_gate_up, gate_up_weight, d.groups);
  const at::Tensor dx_rows = sum_rows(dx_pairs, d.row_pairs, d.row_begin, {});

  g.x = sum_rows(wire.send(dx_rows, d.receive_rows, d.send_rows), d.token_rows, d.token_begin, {});
  const at::Tensor dp_arrival = at::empty_like(dp).index_copy_(0, d.arrival, dp);
  const at::Tensor dp_back = wire.send(dp_arrival, d.receive_pairs, d.send_pairs);
  g.gates = at::zeros({delta.size(0) * top_k}, dp.options()).index_copy_(0, d.pair, dp_back);
  g.gates = g.gates.view({delta.size(0), top_k});

  work.backward_rows = narrow_counts(d.send_rows);
  work.backward_pairs = narrow_counts(d.send_pairs);
  work.backward_gemm_rows = group_rows(d.groups);
  work.backward_bytes = wire.bytes();
  work.memory_peak_bytes = std::max(
      work.memory_peak_bytes,
      instance_bytes(s.slots) + bytes_of(s.rows, s.gates, s.gate_up, sent, delta_rows, deltas, a, r,
                                         d_gate_up, dx_pairs, dx_rows));
  return g;
}

class ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gates,
                            const at::Tensor& gate_up, const at::Tensor& down,
                            const c10::intrusive_ptr<State>& state) {
    const Stopwatch watch;
    at::Tensor out = forward_pass(*state, x, gates);
    if (state->call.backward) {
      // Weights are saved only so that a change between the passes is noticed.
      ctx->save_for_backward({gate_up, down});
      ctx->saved_data["state"] = c10::IValue::make_capsule(state);
      ctx->saved_data["top_k"] = gates.size(1);
    }
    state->call.work->forward_seconds += watch.seconds();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ctx->get_saved_variables();
    const auto capsule = ctx->saved_data["state"].toCapsule();
    auto& state = static_cast<State&>(*capsule);
    const Stopwatch watch;
    // Collective even where this rank's output went unused: the others wait for its pairs.
    const at::Tensor delta = grads[0].defined()
                                 ? grads[0]
                                 : at::zeros(state.shape, state.rows.options());
    Gradients g = backward_pass(state, delta, ctx->saved_data["top_k"].toInt());
    state.rows = state.gate_up = state.gates = at::Tensor();  // no second pass
    state.call.work->backward_seconds += watch.seconds();
    return {g.x, g.gates, g.gate_up, g.down, at::Tensor()};
  }
};

}  // namespace

at::Tensor experts(const at::Tensor& x, const at::Tensor& gates, const ExpertSlots& slots,
                   ExpertsCall call) {
  auto state = c10::make_intrusive<State>();
  state->shape = x.sizes().vec();
  state->call = std::move(call);
  state->slots = slots;
  return ExpertsFunction::apply(x, gates, slots.gate_up, slots.down, state);
}

}  // namespace lrmoe::moe
