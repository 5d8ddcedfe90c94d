#include "lrmoe/model/transformer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <optional>

#include "lrmoe/base/hash.h"
#include "lrmoe/model/blocks.h"

namespace lrmoe::model {

namespace {

// How a weight starts: ones (norms), zeros (biases), or drawn with this deviation.
struct Initial {
  double std = 0.0;
  bool zero = false;
};
constexpr Initial kOnes{};
constexpr Initial kZeros{.zero = true};

// A weight that depends on (seed, name) alone.
at::Tensor initial_weight(at::IntArrayRef shape, Initial initial, std::uint64_t seed,
                          const std::string& name, at::ScalarType dtype) {
  at::Tensor weight;
  if (initial.zero) {
    weight = at::zeros(shape, at::kFloat);
  } else if (initial.std == 0.0) {
    weight = at::ones(shape, at::kFloat);
  } else {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(hash({seed, hash(name)}));
    weight = at::empty(shape, at::kFloat).normal_(0.0, initial.std, generator);
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
  at::ScalarType expert_dtype;
  at::ScalarType master;
  std::uint64_t seed;
  Start start;
  Rotary rotary;
  at::Tensor embedding, norm, head;
  std::vector<Block> blocks;
  std::vector<Parameter> parameters;
  std::vector<std::unique_ptr<moe::MoeLayer>> moe_layers;
  std::vector<int> layer_of;

  Impl(const ModelConfig& c, std::uint64_t s, at::ScalarType d, Start first, at::ScalarType e)
      : config(c),
        dtype(d),
        expert_dtype(e),
        master(d == at::kDouble ? at::kDouble : at::kFloat),
        seed(s),
        start(first),
        rotary(c.sequence, c.rotated(), c.rope_theta, d, c.family != Family::own) {}

  // Projections onto the residual stream are scaled so that its variance does not
  // grow with the depth (GPT-2).
  double residual_scale() const { return 1.0 / std::sqrt(2.0 * config.layers); }

  at::Tensor add(const std::string& name, at::IntArrayRef shape, Initial initial) {
    at::Tensor weight = start == Start::unset ? at::empty(shape, master).requires_grad_(true)
                                              : initial_weight(shape, initial, seed, name, master);
    parameters.push_back({name, std::move(weight), shape.size() > 1});
    return parameters.back().value;
  }

  MlpWeights add_mlp(const std::string& name, std::int64_t width, double residual_std) {
    MlpWeights weights;
    weights.gate_up = add(name + ".gate_up", {2 * width, config.hidden}, {config.init_std});
    weights.down = add(name + ".down", {config.hidden, width}, {residual_std});
    return weights;
  }

  AttentionWeights add_attention(const std::string& name, double residual_std) {
    const std::int64_t d = config.hidden;
    const std::int64_t dim = config.width_of_head();
    const std::int64_t q = config.heads * dim;
    const std::int64_t kv = config.kv_heads * dim;
    const Initial drawn{config.init_std};
    AttentionWeights weights;
    weights.query = add(name + "query", {q, d}, drawn);
    weights.key = add(name + "key", {kv, d}, drawn);
    weights.value = add(name + "value", {kv, d}, drawn);
    weights.output = add(name + "output", {d, q}, {residual_std});
    if (config.attention_bias) {
      weights.query_bias = add(name + "query_bias", {q}, kZeros);
      weights.key_bias = add(name + "key_bias", {kv}, kZeros);
      weights.value_bias = add(name + "value_bias", {kv}, kZeros);
    }
    if (config.output_bias) {
      weights.output_bias = add(name + "output_bias", {d}, kZeros);
    }
    if (config.qk_norm != QkNorm::none) {
      const bool each = config.qk_norm == QkNorm::head;
      weights.query_norm = add(name + "query_norm", {each ? dim : q}, kOnes);
      weights.key_norm = add(name + "key_norm", {each ? dim : kv}, kOnes);
    }
    return weights;
  }

  void add_block(int layer, int slots, comm::Communicator& communicator,
                 const plan::Strategy& strategy, int ranks_per_node) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const std::int64_t d = config.hidden;
    const double std = config.init_std;
    const double residual_std = std * residual_scale();
    Block block;
    block.attention_norm = add(prefix + "attention.norm", {d}, kOnes);
    block.attention = add_attention(prefix + "attention.", residual_std);
    block.mlp_norm = add(prefix + "mlp.norm", {d}, kOnes);
    if (config.is_moe_layer(layer)) {
      moe_layers.push_back(std::make_unique<moe::MoeLayer>(config.moe(), layer, slots, communicator,
                                                           strategy, seed, std, expert_dtype,
                                                           ranks_per_node));
      layer_of.push_back(layer);
      block.moe = moe_layers.back().get();
      parameters.push_back({prefix + "router", block.moe->router_weight, true});
      if (config.shared_experts > 0) {
        const std::int64_t width =
            static_cast<std::int64_t>(config.shared_experts) * config.expert_width;
        block.dense = add_mlp(prefix + "shared", width, residual_std);
      }
    } else {
      block.dense = add_mlp(prefix + "mlp", config.width_of_dense(), residual_std);
    }
    blocks.push_back(std::move(block));
  }

  // The auxiliary loss while a pass runs through the layers.
  struct Aux {
    at::Tensor sum;           // of the layers' own losses
    at::Tensor share, pairs;  // summed over the layers; undefined before the first

    void add(const moe::MoeLayer::Output& layer) {
      sum = sum + layer.aux;
      share = share.defined() ? share + layer.share : layer.share;
      pairs = pairs.defined() ? pairs + layer.pairs : layer.pairs;
    }
  };

  at::Tensor aux_loss(const Aux& aux) const {
    if (config.aux_loss == AuxLoss::per_layer || !aux.share.defined()) {
      return aux.sum;
    }
    // E sum_e (C_e / N) (S_e / N) with C_e the pairs, S_e the shares and N the
    // tokens of all layers: the layers' losses are k times as large.
    const double rows = std::max(aux.pairs.sum().item<double>() / config.top_k, 1.0);
    const at::Tensor chosen = (aux.pairs / rows).to(aux.share.scalar_type());
    return (aux.share * chosen).sum() * (config.experts / rows);
  }

  // The MoE and dense branches of one block.
  at::Tensor mlp(const Block& block, const at::Tensor& x, const moe::StepInfo& info,
                 Aux& aux) const {
    const at::Tensor normed = rms_norm(x, block.mlp_norm, config.norm_eps);
    at::Tensor out = x;
    if (block.moe != nullptr) {
      const moe::MoeLayer::Output routed =
          block.moe->forward(normed.to(expert_dtype).view({-1, config.hidden}), info);
      out = out + routed.y.view(x.sizes()).to(x.scalar_type());
      aux.add(routed);
    }
    if (block.dense) {
      out = out + gated_mlp(normed, *block.dense, dtype);
    }
    return out;
  }

  at::Tensor logits(const at::Tensor& tokens, const moe::StepInfo& info, Aux& aux) const {
    LRMOE_ASSERT(tokens.dim() == 2 && tokens.size(1) <= config.sequence,
                 "tokens must be [B, S] with S at most the model's sequence");
    at::Tensor x = at::embedding(embedding, tokens, config.padding_token);
    for (const Block& block : blocks) {
      x = x + attention(rms_norm(x, block.attention_norm, config.norm_eps), block.attention,
                        config.heads, config.kv_heads, rotary, dtype, config.norm_eps);
      x = mlp(block, x, info, aux);
    }
    return linear(rms_norm(x, norm, config.norm_eps), head, dtype).to(master);
  }
};

Transformer::Transformer(const ModelConfig& config, int slots, comm::Communicator& communicator,
                         const plan::Strategy& strategy, std::uint64_t seed, at::ScalarType dtype,
                         int ranks_per_node, Start start,
                         std::optional<at::ScalarType> expert_dtype) {
  LRMOE_ASSERT((config.head_dim > 0 || config.hidden % config.heads == 0) &&
                   config.rotated() % 2 == 0 && config.heads % config.kv_heads == 0,
               "heads must divide the hidden size into even parts, kv_heads the heads");
  impl_ = std::make_unique<Impl>(config, seed, dtype, start, expert_dtype.value_or(dtype));
  const Initial drawn{config.init_std};
  impl_->embedding = impl_->add("embedding", {config.vocabulary, config.hidden}, drawn);
  for (int layer = 0; layer < config.layers; ++layer) {
    impl_->add_block(layer, slots, communicator, strategy, ranks_per_node);
  }
  impl_->norm = impl_->add("norm", {config.hidden}, kOnes);
  impl_->head = config.tied_embeddings
                    ? impl_->embedding
                    : impl_->add("head", {config.vocabulary, config.hidden}, drawn);
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

Transformer::Loss Transformer::loss(const at::Tensor& tokens, const at::Tensor& targets,
                                    const moe::StepInfo& info) {
  Impl::Aux aux{at::zeros({}, impl_->master), {}, {}};
  const at::Tensor scores = impl_->logits(tokens, info, aux);
  const at::Tensor sum =
      at::cross_entropy_loss(scores.view({-1, impl_->config.vocabulary}), targets.reshape({-1}),
                             /*weight=*/{}, at::Reduction::Sum);
  return {sum, impl_->aux_loss(aux)};
}

at::Tensor Transformer::logits(const at::Tensor& tokens, const moe::StepInfo& info) {
  Impl::Aux aux{at::zeros({}, impl_->master), {}, {}};
  return impl_->logits(tokens, info, aux);
}

const ModelConfig& Transformer::config() const {
  return impl_->config;
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
