// Forward pass of the routed experts: dispatch, grouped gated MLPs, combine.
#include "lrmoe/moe/experts_state.h"
#include "lrmoe/moe/grouped.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/moe/wire.h"

namespace lrmoe::moe {
namespace {

// Numbers per pair, in destination order, home to the source: [T * k, ...] by pair.
at::Tensor bring_home(Wire& wire, const at::Tensor& values, const Dispatch& d, std::int64_t pairs) {
  const at::Tensor home = wire.send(values.index_select(0, d.place), d.receive_pairs, d.send_pairs);
  return at::zeros({pairs, values.size(1)}, values.options()).index_copy_(0, d.pair, home);
}

// Sums of a row's p_k y_k, made where y is or, with all y at hand, at the source:
// the same bits either way.
at::Tensor combine(ExpertsState& s, Wire& wire, const at::Tensor& y, const at::Tensor& sent_gates) {
  const Dispatch& d = s.dispatch;
  if (s.keeps_outputs()) {
    s.outputs = wire.send(y.index_select(0, d.place), d.receive_pairs, d.send_pairs);
    return sum_rows(s.outputs, d.sent_row_pairs, d.sent_row_begin,
                    sent_gates.index_select(0, d.sent_row_pairs));
  }
  const at::Tensor summed =
      sum_rows(y, d.row_pairs, d.row_begin, s.gates.index_select(0, d.row_pairs));
  return wire.send(summed, d.receive_rows, d.send_rows);
}

// Activation mode keep with a shortlist: the others have no backward pass, so
// their activations go.
void keep_listed(ExpertsState& s, Wire& wire) {
  const Dispatch& d = s.dispatch;
  at::Tensor sent = at::empty({d.pair.numel()}, at::kByte);
  for (std::size_t i = 0; i < s.pairs.pair.size(); ++i) {
    sent.mutable_data_ptr<std::uint8_t>()[i] =
        s.call.listed[static_cast<std::size_t>(s.pairs.pair[i])];
  }
  const at::Tensor listed =
      wire.send(sent, d.send_pairs, d.receive_pairs).index_select(0, d.arrival).to(at::kBool);
  const at::Tensor kept = listed.nonzero().flatten();
  s.compact = at::cumsum(listed, 0, at::kLong).sub_(1);
  at::Tensor row_kept = at::zeros({s.rows.size(0)}, at::kBool);
  row_kept.index_fill_(0, d.row.index_select(0, kept), true);
  const at::Tensor new_row = at::cumsum(row_kept, 0, at::kLong).sub_(1);
  s.compact_row = new_row.index_select(0, d.row.index_select(0, kept));
  s.rows = s.rows.index_select(0, row_kept.nonzero().flatten());
  s.gate_up = s.gate_up.index_select(0, kept);
}

void keep_for_backward(ExpertsState& s, Wire& wire, const at::Tensor& x, const at::Tensor& gates,
                       const at::Tensor& out) {
  s.x = x.detach();
  if (s.scores()) {
    s.source_gates = gates.detach();
    s.out = out;
  }
  if (s.scores() && s.call.options.metric == plan::Metric::exact) {
    return;  // the oracle needs every pair's
  }
  if (s.recomputes()) {
    s.rows = s.gate_up = at::Tensor();
  } else if (s.selects() && !s.call.listed.empty()) {
    keep_listed(s, wire);
  }
}

}  // namespace

at::Tensor experts_forward(ExpertsState& s, const at::Tensor& x, const at::Tensor& gates) {
  cost::LayerWork& work = *s.call.work;
  comm::Communicator& comm = *s.call.communicator;
  const plan::RankPlan& plan = *s.call.plan;
  const CpuStopwatch cpu;
  Wire wire(comm);

  s.pairs =
      route_pairs(s.call.experts, plan.cluster.experts, plan.sends, comm.size(), s.call.listed);
  s.dispatch = wire.timed([&] {
    return make_dispatch(comm, s.pairs, x.size(0), plan.cluster.top_k, plan.receives, s.slots);
  });
  const Dispatch& d = s.dispatch;

  const at::Tensor sent_x = x.index_select(0, d.row_token);
  s.rows = wire.send(sent_x, d.send_rows, d.receive_rows);
  const at::Tensor sent_gates = gates.reshape({-1}).index_select(0, d.pair);
  s.gates = wire.send(sent_gates, d.send_pairs, d.receive_pairs).index_select(0, d.arrival);

  s.gate_up = grouped_linear(s.rows.index_select(0, d.row), s.gate_up_weight(), d.groups);
  const at::Tensor a = gated(s.gate_up);
  const at::Tensor y = grouped_linear(a, s.down_weight(), d.groups);
  const at::Tensor returned = combine(s, wire, y, sent_gates);
  at::Tensor out = sum_rows(returned, d.token_rows, d.token_begin, {});

  if (s.call.backward && s.scores() && statistics_per_pair(s.call.options) > 0) {
    const at::Tensor statistics =
        pair_statistics(s.call.options, a, s.gate_up, y, s.down_weight(), d.groups);
    s.statistics = bring_home(wire, statistics, d, gates.numel());
    work.statistics_bytes = bytes_of(s.statistics);
  }

  const std::int64_t peak =
      instance_bytes(s.slots) +
      bytes_of(sent_x, s.rows, s.gates, s.gate_up, a, y, returned, s.outputs, s.statistics);
  if (s.call.backward) {
    keep_for_backward(s, wire, x, gates, out);
  }

  work.forward_rows = to_int32(d.send_rows);
  work.forward_pairs = to_int32(d.send_pairs);
  work.forward_gemm_rows = group_rows(d.groups);
  work.combine_rows = to_int32(s.keeps_outputs() ? d.send_pairs : d.send_rows);
  work.recompute = s.recomputes();
  work.forward_bytes = wire.bytes() + d.index_bytes;
  work.memory_peak_bytes = peak;
  work.exchange_seconds += wire.time().wall;
  work.forward_cpu_seconds += cpu.seconds() - wire.time().cpu;
  return out;
}

}  // namespace lrmoe::moe
