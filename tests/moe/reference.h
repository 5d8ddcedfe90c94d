// The reference: an MoE layer as a naive loop over tokens in plain autograd,
// and helpers to run the real layer over thread ranks against it.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <mutex>
#include <vector>

#include "lrmoe/comm/threads.h"
#include "lrmoe/moe/layer.h"
#include "lrmoe/optim/expert_optimizer.h"

namespace lrmoe::testing {

/// Normal values from a generator of their own.
at::Tensor randn(std::vector<std::int64_t> shape, std::uint64_t seed, double std = 1.0);

struct LayerWeights {
  at::Tensor router;   // [E, d]
  at::Tensor bias;     // [E] or undefined
  at::Tensor gate_up;  // [E, 2n, d]
  at::Tensor down;     // [E, d, n]
};

/// fp64 leaves that require grad.
LayerWeights random_weights(const model::MoeConfig& config, std::uint64_t seed);

struct ReferenceResult {
  at::Tensor out;                     // [T, d]
  at::Tensor aux;                     // scalar
  std::vector<std::int64_t> experts;  // [T * k]
};
/// The layer over all tokens, one pair at a time. `keep(pair)` false leaves a
/// pair out (forward and backward), as a capacity does.
ReferenceResult reference_layer(const at::Tensor& x, const LayerWeights& weights,
                                const model::MoeConfig& config,
                                const std::function<bool(std::int64_t)>& keep = {});

/// What R ranks computed, put together again.
struct RankedResult {
  at::Tensor out, dx, router_grad;     // [T, d], [T, d], [E, d]
  at::Tensor gate_up_grad, down_grad;  // [E, 2n, d], [E, d, n]: sums over instances
  double aux = 0.0;                    // sum over ranks
  std::int64_t dropped = 0;
  std::vector<plan::Plan> plans;                       // of rank 0
  std::vector<std::shared_ptr<cost::LayerWork>> work;  // one per rank
};
struct RankedOptions {
  int ranks = 1;
  int slots = 1;
  at::ScalarType dtype = at::kDouble;
  double aux_weight = 0.0;
  std::vector<std::int64_t> tokens;             // per rank; empty: as even as possible
  std::function<void(moe::MoeLayer&)> prepare;  // on every rank, before the forward pass
  moe::StepInfo step = {};                      // of every pass, but for its number
};
/// Runs loss = <out, direction> + aux_weight * aux forward and backward.
RankedResult ranked_layer(const at::Tensor& x, const at::Tensor& direction,
                          const LayerWeights& weights, const model::MoeConfig& config,
                          const plan::Strategy& strategy, const RankedOptions& options);

/// Gradients of one layer pass, summed over ranks: dWg, dWu [E, n, d], dWd
/// [E, d, n], dx [T, d], router [E, d].
struct LayerGradients {
  at::Tensor gate, up, down, dx, router;
};
/// The gradients of `draws` passes over the same tokens, steps 0, 1, ...: each
/// has its own draw. `each` is called once per draw, in order.
void sampled_gradients(const at::Tensor& x, const at::Tensor& direction,
                       const LayerWeights& weights, const model::MoeConfig& config,
                       const plan::Strategy& strategy, const RankedOptions& options, int draws,
                       const std::function<void(const LayerGradients&)>& each);

/// A strategy whose placement and split are random but legal (replicas, pairs
/// spread over all instances), and move at every step.
std::unique_ptr<const plan::Strategy> scattered_strategy(std::uint64_t seed);

/// Another strategy's plans, run in `chunks` chunks.
std::unique_ptr<const plan::Strategy> chunked(std::unique_ptr<const plan::Strategy> strategy,
                                              int chunks);

/// A small layer: d 10, six experts of width 7, top-3.
model::MoeConfig small_layer(model::RouterKind router, bool renormalise, double scale);
std::unique_ptr<const plan::Strategy> lrmoe_strategy(const plan::LrmoeOptions& options);
plan::LrmoeOptions sampled(double ratio, plan::Activations activations = plan::Activations::keep);
/// Room for six experts and two spare slots a rank.
RankedOptions on_ranks(int ranks, at::ScalarType dtype = at::kDouble);

/// max |a - b| / max |b|.
double relative_error(const at::Tensor& a, const at::Tensor& b);

}  // namespace lrmoe::testing
