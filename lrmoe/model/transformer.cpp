#include "lrmoe/model/transformer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <optional>

#include "lrmoe/base/hash.h"
#include "lrmoe/model/blocks.h"

namespace lrmoe::model {

namespace {

// A weight that depends on (seed, name) alone; std 0 gives ones (norms).
at::Tensor initial_weight(at::IntArrayRef shape, double std, std::uint64_t seed,
                          const std::string& name, at::ScalarType dtype) {
  at::Tensor weight;
  if (std == 0.0) {
    weight = at::ones(shape, at::kFloat);
  } else {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(hash({seed, hash(name)}));
    weight = at::empty(shape, at::kFloat).normal_(0.0, std, generator);
  }
  return weight.to(dtype).requires_grad_(true);
}

struct Block {
  at::Tensor attention_norm;
  AttentionWeights attention;
  at::Tensor mlp_norm;
  moe::MoeLayer* moe = nullptr;     // or a dense MLP alone
  std::optional<MlpWeights> dense;  // the shared experts where there is a MoE
};

}  // namespace

struct Transformer::Impl {
  ModelConfig config;
  at::ScalarType dtype;
  at::ScalarType master;
  std::uint64_t seed;
  Rotary rotary;
  at::Tensor embedding, norm, head;
  std::vector<Block> blocks;
  std::vector<Parameter> parameters;
  std::vector<std::unique_ptr<moe::MoeLayer>> moe_layers;
  std::vector<int> layer_of;

  Impl(const ModelConfig& c, std::uint64_t s, at::ScalarType d)
      : config(c),
        dtype(d),
        master(d == at::kDouble ? at::kDouble : at::kFloat),
        seed(s),
        rotary(c.sequence, c.hidden / c.heads, c.rope_theta, d) {}

  // Projections onto the residual stream are scaled so that its variance does not
  // grow with the depth (GPT-2).
  double residual_scale() const { return 1.0 / std::sqrt(2.0 * config.layers); }

  at::Tensor add(const std::string& name, at::IntArrayRef shape, double std) {
    parameters.push_back({name, initial_weight(shape, std, seed, name, master), shape.size() > 1});
    return parameters.back().value;
  }

  MlpWeights add_mlp(const std::string& name, std::int64_t width, double residual_std) {
    MlpWeights weights;
    weights.gate_up = add(name + ".gate_up", {2 * width, config.hidden}, config.init_std);
    weights.down = add(name + ".down", {config.hidden, width}, residual_std);
    return weights;
  }

  void add_block(int layer, int slots, comm::Communicator& communicator,
                 const plan::Strategy& strategy, int ranks_per_node) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const std::int64_t d = config.hidden;
    const std::int64_t dim = d / config.heads;
    const double std = config.init_std;
    const double residual_std = std * residual_scale();
    Block block;
    block.attention_norm = add(prefix + "attention.norm", {d}, 0.0);
    block.attention.query = add(prefix + "attention.query", {config.heads * dim, d}, std);
    block.attention.key = add(prefix + "attention.key", {config.kv_heads * dim, d}, std);
    block.attention.value = add(prefix + "attention.value", {config.kv_heads * dim, d}, std);
    block.attention.output =
        add(prefix + "attention.output", {d, config.heads * dim}, residual_std);
    block.mlp_norm = add(prefix + "mlp.norm", {d}, 0.0);
    if (config.is_moe_layer(layer)) {
      moe_layers.push_back(std::make_unique<moe::MoeLayer>(
          config.moe(), layer, slots, communicator, strategy, seed, std, dtype, ranks_per_node));
      layer_of.push_back(layer);
      block.moe = moe_layers.back().get();
      parameters.push_back({prefix + "router", block.moe->router_weight, true});
      if (config.shared_experts > 0) {
        const std::int64_t width =
            static_cast<std::int64_t>(config.shared_experts) * config.expert_width;
        block.dense = add_mlp(prefix + "shared", width, residual_std);
      }
    } else {
      const int width =
          config.dense_width > 0 ? config.dense_width : config.top_k * config.expert_width;
      block.dense = add_mlp(prefix + "mlp", width, residual_std);
    }
    blocks.push_back(std::move(block));
  }

  // The MoE and dense branches of one block; adds the layer's auxiliary loss to `aux`.
  at::Tensor mlp(const Block& block, const at::Tensor& x, const moe::StepInfo& info,
                 at::Tensor& aux) const {
    const at::Tensor normed = rms_norm(x, block.mlp_norm, config.norm_eps);
    at::Tensor out = x;
    if (block.moe != nullptr) {
      const moe::MoeLayer::Output routed =
          block.moe->forward(normed.to(dtype).view({-1, config.hidden}), info);
      out = out + routed.y.view(x.sizes()).to(x.scalar_type());
      aux = aux + routed.aux;
    }
    if (block.dense) {
      out = out + gated_mlp(normed, *block.dense, dtype);
    }
    return out;
  }

  at::Tensor logits(const at::Tensor& tokens, const moe::StepInfo& info, at::Tensor& aux) const {
    LRMOE_ASSERT(tokens.dim() == 2 && tokens.size(1) <= config.sequence,
                 "tokens must be [B, S] with S at most the model's sequence");
    at::Tensor x = at::embedding(embedding, tokens);
    for (const Block& block : blocks) {
      x = x + attention(rms_norm(x, block.attention_norm, config.norm_eps), block.attention,
                        config.heads, config.kv_heads, rotary, dtype);
      x = mlp(block, x, info, aux);
    }
    return linear(rms_norm(x, norm, config.norm_eps), head, dtype).to(master);
  }
};

Transformer::Transformer(const ModelConfig& config, int slots, comm::Communicator& communicator,
                         const plan::Strategy& strategy, std::uint64_t seed, at::ScalarType dtype,
                         int ranks_per_node) {
  LRMOE_ASSERT(config.hidden % (2 * config.heads) == 0 && config.heads % config.kv_heads == 0,
               "heads must divide the hidden size into even parts, kv_heads the heads");
  impl_ = std::make_unique<Impl>(config, seed, dtype);
  impl_->embedding = impl_->add("embedding", {config.vocabulary, config.hidden}, config.init_std);
  for (int layer = 0; layer < config.layers; ++layer) {
    impl_->add_block(layer, slots, communicator, strategy, ranks_per_node);
  }
  impl_->norm = impl_->add("norm", {config.hidden}, 0.0);
  impl_->head = impl_->add("head", {config.vocabulary, config.hidden}, config.init_std);
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

Transformer::Loss Transformer::loss(const at::Tensor& tokens, const at::Tensor& targets,
                                    const moe::StepInfo& info) {
  at::Tensor aux = at::zeros({}, impl_->master);
  const at::Tensor scores = impl_->logits(tokens, info, aux);
  const at::Tensor sum =
      at::cross_entropy_loss(scores.view({-1, impl_->config.vocabulary}), targets.reshape({-1}),
                             /*weight=*/{}, at::Reduction::Sum);
  return {sum, aux};
}

at::Tensor Transformer::logits(const at::Tensor& tokens, const moe::StepInfo& info) {
  at::Tensor aux = at::zeros({}, impl_->master);
  return impl_->logits(tokens, info, aux);
}

const std::vector<Parameter>& Transformer::parameters() const {
  return impl_->parameters;
}

const std::vector<std::unique_ptr<moe::MoeLayer>>& Transformer::moe_layers() const {
  return impl_->moe_layers;
}

const std::vector<int>& Transformer::layer_of() const {
  return impl_->layer_of;
}

at::Tensor Transformer::initial_expert(std::size_t i, int expert) const {
  at::Tensor flat = impl_->moe_layers.at(i)->initial_expert(expert);
  // The down projection writes to the residual stream.
  const std::int64_t down = std::int64_t{impl_->config.hidden} * impl_->config.expert_width;
  flat.narrow(0, flat.numel() - down, down).mul_(impl_->residual_scale());
  return flat;
}

}  // namespace lrmoe::model
