#include "lrmoe/moe/scoring.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/moe/chunks.h"

namespace lrmoe::moe {
namespace {

bool needs_update_norm(const plan::LrmoeOptions& options) {
  return options.metric == plan::Metric::update_norm ||
         options.metric == plan::Metric::update_router;
}

}  // namespace

at::Tensor squares(const at::Tensor& rows) {
  const bool narrow = rows.scalar_type() == at::kBFloat16;
  at::Tensor out =
      at::empty({rows.size(0)}, narrow ? rows.options().dtype(at::kFloat) : rows.options());
  in_blocks(rows.size(0), [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor block = rows.slice(0, begin, end);
    const at::Tensor wide = narrow ? block.to(at::kFloat) : block;
    out.slice(0, begin, end).copy_(wide.square().sum(-1));
  });
  return out;
}

at::Tensor row_products(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  at::Tensor out = at::empty({a.size(0)}, a.options().dtype(dtype));
  in_blocks(a.size(0), [&](std::int64_t begin, std::int64_t end) {
    out.slice(0, begin, end)
        .copy_((a.slice(0, begin, end) * b.slice(0, begin, end)).sum(1, false, dtype));
  });
  return out;
}

bool needs_output_norm(const plan::LrmoeOptions& options) {
  return options.shortlist < 1.0 && options.shortlist_by == plan::ShortlistBy::output;
}

std::vector<std::uint8_t> shortlist_by_gate(const plan::LrmoeOptions& options,
                                            const at::Tensor& gates) {
  if (options.shortlist >= 1.0 || options.shortlist_by != plan::ShortlistBy::gate) {
    return {};
  }
  const at::Tensor flat = gates.detach().flatten();
  const at::Tensor order = std::get<1>(at::sort(flat, /*stable=*/true, 0, /*descending=*/true))
                               .slice(0, 0, plan::shortlist_size(options, flat.numel()))
                               .contiguous();
  std::vector<std::uint8_t> listed(static_cast<std::size_t>(flat.numel()), 0);
  for (std::int64_t i = 0; i < order.numel(); ++i) {
    listed[static_cast<std::size_t>(order.const_data_ptr<std::int64_t>()[i])] = 1;
  }
  return listed;
}

at::Tensor pair_statistics(const plan::LrmoeOptions& options, const at::Tensor& a,
                           const at::Tensor& gate_up, const at::Tensor& down,
                           std::span<const Group> groups) {
  at::Tensor out =
      at::empty({a.size(0), plan::statistics_of(options)}, a.options().dtype(at::kFloat));
  const bool update_norm = needs_update_norm(options);
  if (!update_norm && options.metric != plan::Metric::down_norm) {
    return out;
  }
  // Group by group and in blocks, so that what lies between stays in the caches.
  for (const auto& group : groups) {
    // c^2 [n]
    const at::Tensor c_squared =
        update_norm ? down.select(0, group.slot).to(at::kFloat).square().sum(0) : at::Tensor();
    in_blocks(group.end - group.begin, [&](std::int64_t begin, std::int64_t end) {
      const auto part = [&](const at::Tensor& of) {
        return of.slice(0, group.begin + begin, group.begin + end);
      };
      part(out).select(1, 0).copy_(squares(part(a)));
      if (update_norm) {
        // d a = (u s'(g)) dg + silu(g) du: the squares of both factors, weighted by c^2.
        const at::Tensor ones = at::ones({1, a.size(1)}, a.options()).expand({end - begin, -1});
        const at::Tensor factors = gated_backward(ones, part(gate_up)).to(at::kFloat).square_();
        const auto halves = factors.chunk(2, 1);
        part(out).select(1, 1).copy_(at::mv(halves[0] + halves[1], c_squared));
      }
    });
  }
  return out;
}

void add_output_norms(const plan::LrmoeOptions& options, const at::Tensor& y,
                      at::Tensor& statistics) {
  if (needs_output_norm(options)) {
    statistics.select(1, statistics.size(1) - 1).copy_(squares(y).sqrt());
  }
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

at::Tensor exact_square(const at::Tensor& delta, const at::Tensor& x_square, const at::Tensor& a,
                        const at::Tensor& r, const at::Tensor& gate_up) {
  at::Tensor out = at::empty({a.size(0)}, a.options().dtype(at::kFloat));
  in_blocks(a.size(0), [&](std::int64_t begin, std::int64_t end) {
    const auto part = [&](const at::Tensor& t) { return t.slice(0, begin, end); };
    const at::Tensor by_gate_up = squares(gated_backward(part(r), part(gate_up)));
    out.slice(0, begin, end)
        .copy_(squares(part(delta)) * squares(part(a)) + part(x_square) * by_gate_up);
  });
  return out;
}

}  // namespace lrmoe::moe
