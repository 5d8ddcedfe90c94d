#include "lrmoe/moe/router.h"

#include <algorithm>
#include <limits>

#include "lrmoe/base/log.h"

namespace lrmoe::moe {
namespace {

// One reduction tells whether anything is not finite; an overflow of the sum
// only costs the closer look.
bool looks_finite(const at::Tensor& logits) {
  return std::isfinite(logits.detach().sum().item<double>());
}

at::Tensor only_finite(const at::Tensor& logits) {
  if (logits.numel() == 0 || looks_finite(logits) ||
      at::isfinite(logits.detach()).all().item<bool>()) {
    return logits;
  }
  log::warn_once("router-not-finite",
                 "the router met logits that are NaN or infinite; NaN counts as the least "
                 "(training has probably diverged)");
  constexpr double kLargest = 1e30;
  return logits.nan_to_num(-kLargest, kLargest, -kLargest);
}

at::Tensor router_logits(const at::Tensor& x, const at::Tensor& weight,
                         const model::MoeConfig& config) {
  if (config.router_dtype == model::RouterDtype::model) {
    return at::linear(x, weight.to(x.scalar_type())).to(weight.scalar_type());
  }
  return at::linear(x.to(weight.scalar_type()), weight);
}

// The choice scores [T, E] with -inf for experts outside each token's best groups.
at::Tensor within_groups(const at::Tensor& choice, int groups, int top_groups) {
  const std::int64_t size = choice.size(1) / groups;
  const at::Tensor grouped = choice.view({-1, groups, size});
  const at::Tensor merit =
      std::get<0>(grouped.topk(std::min<std::int64_t>(2, size), -1)).sum(-1);  // [T, G]
  const at::Tensor best = std::get<1>(merit.topk(top_groups, -1));
  const at::Tensor outside = at::ones_like(merit, at::kBool).scatter(1, best, false);
  return grouped.masked_fill(outside.unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view(choice.sizes());
}

}  // namespace

Routing route(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
              const model::MoeConfig& config) {
  const at::Tensor logits = only_finite(router_logits(x, weight, config));
  at::Tensor scores;
  at::Tensor choice;
  if (config.router == model::RouterKind::softmax) {
    scores = at::softmax(logits, -1);
    // Chosen by logits: probabilities of very unlikely experts all round to 0.
    choice = logits.detach();
  } else {
    scores = at::sigmoid(logits);
    choice = scores.detach();
    if (bias.defined()) {
      choice = choice + bias;
    }
    if (config.groups > 1) {
      choice = within_groups(choice, config.groups, config.top_groups);
    }
  }
  Routing out;
  out.ids = std::get<1>(at::topk(choice, config.top_k, -1));
  out.gates = scores.gather(-1, out.ids);
  constexpr double kTiny = 1e-20;  // all scores of a sigmoid router may underflow to 0
  if (config.renormalise) {
    out.gates = out.gates / (out.gates.sum(-1, true) + kTiny);
  }
  if (config.routed_scale != 1.0) {
    out.gates = out.gates * config.routed_scale;
  }
  out.share = config.router == model::RouterKind::softmax ? scores
                                                          : scores / (scores.sum(-1, true) + kTiny);
  return out;
}

at::Tensor load_loss(const at::Tensor& share_sum, const at::Tensor& fraction, std::int64_t tokens) {
  const double scale = static_cast<double>(fraction.numel()) / static_cast<double>(tokens);
  return (share_sum * fraction).sum() * scale;
}

}  // namespace lrmoe::moe
