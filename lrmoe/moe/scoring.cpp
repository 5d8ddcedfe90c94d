#include "lrmoe/moe/scoring.h"

#include <algorithm>

#include "lrmoe/base/error.h"

namespace lrmoe::moe {
namespace {

// Sums of squares over the last dimension, at least fp32.
at::Tensor squares(const at::Tensor& rows) {
  const at::Tensor wide = rows.scalar_type() == at::kBFloat16 ? rows.to(at::kFloat) : rows;
  return wide.square().sum(-1);
}

bool needs_update_norm(const plan::LrmoeOptions& options) {
  return options.metric == plan::Metric::update_norm ||
         options.metric == plan::Metric::update_router;
}

}  // namespace

bool needs_output_norm(const plan::LrmoeOptions& options) {
  return options.shortlist < 1.0 && options.shortlist_by == plan::ShortlistBy::output;
}

std::int64_t listed_pairs(const plan::LrmoeOptions& options, std::int64_t pairs) {
  const auto share =
      static_cast<std::int64_t>(options.shortlist * static_cast<double>(pairs) + 0.5);
  return std::clamp<std::int64_t>(share, std::min<std::int64_t>(pairs, 1), pairs);
}

std::vector<std::uint8_t> shortlist_by_gate(const plan::LrmoeOptions& options,
                                            const at::Tensor& gates) {
  if (options.shortlist >= 1.0 || options.shortlist_by != plan::ShortlistBy::gate) {
    return {};
  }
  const at::Tensor flat = gates.detach().flatten();
  const at::Tensor order = std::get<1>(at::sort(flat, /*stable=*/true, 0, /*descending=*/true))
                               .slice(0, 0, listed_pairs(options, flat.numel()))
                               .contiguous();
  std::vector<std::uint8_t> listed(static_cast<std::size_t>(flat.numel()), 0);
  for (std::int64_t i = 0; i < order.numel(); ++i) {
    listed[static_cast<std::size_t>(order.const_data_ptr<std::int64_t>()[i])] = 1;
  }
  return listed;
}

int statistics_per_pair(const plan::LrmoeOptions& options) {
  const int of_metric = needs_update_norm(options)                  ? 2
                        : options.metric == plan::Metric::down_norm ? 1
                                                                    : 0;
  return of_metric + (needs_output_norm(options) ? 1 : 0);
}

at::Tensor pair_statistics(const plan::LrmoeOptions& options, const at::Tensor& a,
                           const at::Tensor& gate_up, const at::Tensor& y, const at::Tensor& down,
                           std::span<const Group> groups) {
  const bool update_norm = needs_update_norm(options);
  at::Tensor out =
      at::empty({a.size(0), statistics_per_pair(options)}, a.options().dtype(at::kFloat));
  if (needs_output_norm(options)) {
    out.select(1, out.size(1) - 1).copy_(squares(y).sqrt());
  }
  // Group by group, so that what lies between stays in the caches.
  for (const auto& group : groups) {
    if (group.end == group.begin || (!update_norm && options.metric != plan::Metric::down_norm)) {
      continue;
    }
    const auto part = [&](const at::Tensor& of) { return of.slice(0, group.begin, group.end); };
    part(out).select(1, 0).copy_(squares(part(a)));
    if (update_norm) {
      // d a = (u s'(g)) dg + silu(g) du: the squares of both factors, weighted by c^2.
      const at::Tensor factors =
          gated_backward(at::ones_like(part(a)), part(gate_up)).to(at::kFloat).square_();
      const auto halves = factors.chunk(2, 1);
      const at::Tensor c_squared =
          down.select(0, group.slot).to(at::kFloat).square().sum(0);  // [n]
      part(out).select(1, 1).copy_(at::mv(halves[0] + halves[1], c_squared));
    }
  }
  return out;
}

at::Tensor score_pairs(plan::Metric metric, const at::Tensor& gates, const at::Tensor& delta,
                       const at::Tensor& x, const at::Tensor& statistics, const at::Tensor& out) {
  const at::Tensor p = gates.to(at::kFloat);
  if (metric == plan::Metric::gate) {
    return p.flatten();
  }
  at::Tensor base = (p * squares(delta).sqrt().to(at::kFloat).unsqueeze(1)).flatten();
  switch (metric) {
    case plan::Metric::gate_grad:
      return base;
    case plan::Metric::down_norm:
      return base * statistics.select(1, 0).sqrt();
    case plan::Metric::update_norm:
    case plan::Metric::update_router: {
      const std::int64_t k = gates.size(1);
      const at::Tensor x_square =
          squares(x).to(at::kFloat).div_(static_cast<double>(x.size(1))).repeat_interleave(k);
      at::Tensor by_x = statistics.select(1, 1);
      if (metric == plan::Metric::update_router) {
        const at::Tensor mean_out = squares(out).to(at::kFloat) / p.sum(1).square();
        by_x = by_x + mean_out.repeat_interleave(k);
      }
      return base * (statistics.select(1, 0) + x_square * by_x).sqrt();
    }
    default:
      throw InternalError("[score_pairs] this metric is not computed at the source");
  }
}

at::Tensor exact_square(const at::Tensor& delta, const at::Tensor& x, const at::Tensor& a,
                        const at::Tensor& r, const at::Tensor& gate_up) {
  return (squares(delta) * squares(a) + squares(x) * squares(gated_backward(r, gate_up)))
      .to(at::kFloat);
}

}  // namespace lrmoe::moe
