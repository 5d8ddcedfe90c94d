#include "lrmoe/moe/grouped.h"

namespace lrmoe::moe {
namespace {

// Rows that no group covers do not exist: the groups tile [0, P).
at::Tensor loop_of_gemms(const at::Tensor& rows, const at::Tensor& weight, std::int64_t width,
                         bool transposed, std::span<const Group> groups) {
  at::Tensor out = at::empty({rows.size(0), width}, rows.options());
  for (const auto& group : groups) {
    if (group.end > group.begin) {
      at::Tensor part = out.slice(0, group.begin, group.end);
      const at::Tensor w = weight.select(0, group.slot);
      at::mm_out(part, rows.slice(0, group.begin, group.end), transposed ? w.t() : w);
    }
  }
  return out;
}

}  // namespace

at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& weight,
                          std::span<const Group> groups) {
  return loop_of_gemms(x, weight, weight.size(1), true, groups);
}

at::Tensor grouped_linear_input(const at::Tensor& dy, const at::Tensor& weight,
                                std::span<const Group> groups) {
  return loop_of_gemms(dy, weight, weight.size(2), false, groups);
}

at::Tensor grouped_linear_weight(const at::Tensor& dy, const at::Tensor& x, std::int64_t slots,
                                 std::span<const Group> groups) {
  at::Tensor out = at::empty({slots, dy.size(1), x.size(1)}, dy.options());
  std::vector<bool> written(static_cast<std::size_t>(slots), false);
  for (const auto& group : groups) {
    if (group.end > group.begin) {
      at::Tensor part = out.select(0, group.slot);
      at::mm_out(part, dy.slice(0, group.begin, group.end).t(), x.slice(0, group.begin, group.end));
      written[static_cast<std::size_t>(group.slot)] = true;
    }
  }
  for (std::int64_t s = 0; s < slots; ++s) {
    if (!written[static_cast<std::size_t>(s)]) {
      out.select(0, s).zero_();
    }
  }
  return out;
}

at::Tensor gated(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, 1);
  return at::silu(halves[0]).mul_(halves[1]);
}

at::Tensor gated_backward(const at::Tensor& da, const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, 1);
  at::Tensor out = at::empty_like(gate_up);
  auto parts = out.chunk(2, 1);
  at::silu_backward_out(parts[0], da * halves[1], halves[0]);
  at::mul_out(parts[1], at::silu(halves[0]), da);
  return out;
}

}  // namespace lrmoe::moe
