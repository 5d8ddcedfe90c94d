#include "lrmoe/moe/grouped.h"

#include "lrmoe/moe/chunks.h"

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

void grouped_linear_weight(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                           std::span<const Group> groups, std::vector<bool>& written) {
  for (const auto& group : groups) {
    if (group.end == group.begin) {
      continue;
    }
    const auto slot = static_cast<std::size_t>(group.slot);
    at::Tensor part = out.select(0, group.slot);
    const at::Tensor dy_t = dy.slice(0, group.begin, group.end).t();
    const at::Tensor x_part = x.slice(0, group.begin, group.end);
    if (written[slot]) {
      part.addmm_(dy_t, x_part);
    } else {
      at::mm_out(part, dy_t, x_part);
      written[slot] = true;
    }
  }
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

void gated_backward_in_place(const at::Tensor& da, at::Tensor& gate_up) {
  in_blocks(da.size(0), [&](std::int64_t begin, std::int64_t end) {
    at::Tensor block = gate_up.slice(0, begin, end);
    block.copy_(gated_backward(da.slice(0, begin, end), block));
  });
}

}  // namespace lrmoe::moe
