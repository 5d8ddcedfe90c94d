// A decoder-only transformer over bytes or tokens: embedding, blocks of attention and MoE
// (or dense) gated MLP, head. Every rank holds the dense parameters whole and
// its own experts; a forward or backward pass is collective because of the MoE
// layers.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/config.h"
#include "lrmoe/moe/layer.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::model {

/// A dense parameter: the same on every rank. Its gradient is this rank's share.
struct Parameter {
  std::string name;
  at::Tensor value;    // leaf, requires grad; fp32, or fp64 in tests
  bool decay = false;  // weight decay: matrices only
};

/// Where a model's first weights come from: drawn, or left for the caller to fill
/// (model/hf_weights.h): dense parameters have no values then, experts are zero.
enum class Start : std::uint8_t { random, unset };

class Transformer {
 public:
  /// `communicator` and `strategy` outlive the model. Every weight depends on
  /// (seed, its name) alone. `dtype`: of the matmuls, those of the routed experts in
  /// `expert_dtype` where it is given; with bfloat16 the dense
  /// weights stay fp32 and are cast where they are used, and norms, softmax,
  /// residual stream and loss are fp32.
  Transformer(const ModelConfig& config, int slots, comm::Communicator& communicator,
              const plan::Strategy& strategy, std::uint64_t seed, at::ScalarType dtype,
              int ranks_per_node = 0, Start start = Start::random,
              std::optional<at::ScalarType> expert_dtype = std::nullopt);
  ~Transformer();
  Transformer(Transformer&&) noexcept;

  struct Loss {
    at::Tensor cross_entropy;  // scalar: sum over this rank's tokens
    at::Tensor aux;            // scalar: this rank's share, see ModelConfig::aux_loss
  };
  /// tokens, targets: [B, S] int64; B may be 0 and may differ between ranks.
  Loss loss(const at::Tensor& tokens, const at::Tensor& targets, const moe::StepInfo& info);

  /// [B, S, vocabulary], fp32.
  at::Tensor logits(const at::Tensor& tokens, const moe::StepInfo& info);

  const ModelConfig& config() const;

  /// In a fixed order; routers included, experts not.
  const std::vector<Parameter>& parameters() const;

  /// The MoE layers, in order; layer_of()[i] is the block that moe_layers()[i] sits in.
  const std::vector<std::unique_ptr<moe::MoeLayer>>& moe_layers() const;
  const std::vector<int>& layer_of() const;

  /// The first flat parameters of an expert of moe_layers()[i]: fp32 [3dn].
  at::Tensor initial_expert(std::size_t i, int expert) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lrmoe::model
