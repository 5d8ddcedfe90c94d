#include "lrmoe/model/hf_names.h"

#include <utility>

namespace lrmoe::model {

namespace {

std::string layer_name(const ModelConfig& config, int layer) {
  return (config.family == Family::own ? "layers." : "model.layers.") + std::to_string(layer) + ".";
}

std::string experts_name(const ModelConfig& config, int layer) {
  const bool mixtral = config.family == Family::mixtral;
  return layer_name(config, layer) +
         (config.family == Family::own ? "" : (mixtral ? "block_sparse_moe." : "mlp.")) +
         "experts.";
}

// Collects the parameters of one model.
class Names {
 public:
  explicit Names(const ModelConfig& config) : config_(config) {}

  void whole(const std::string& own, const std::string& hf, std::vector<std::int64_t> shape) {
    const bool same = config_.family == Family::own;
    out_.push_back({own, {{same ? own : hf, std::move(shape)}}});
  }

  void mlp(const std::string& own, const std::string& hf, std::int64_t width) {
    const std::int64_t d = config_.hidden;
    if (config_.family == Family::own) {
      out_.push_back({own + ".gate_up", {{own + ".gate_up", {2 * width, d}}}});
    } else {
      out_.push_back(
          {own + ".gate_up",
           {{hf + ".gate_proj.weight", {width, d}}, {hf + ".up_proj.weight", {width, d}}}});
    }
    whole(own + ".down", hf + ".down_proj.weight", {d, width});
  }

  void attention(const std::string& own, const std::string& hf) {
    const ModelConfig& c = config_;
    const std::int64_t d = c.hidden;
    const std::int64_t q = std::int64_t{c.heads} * c.width_of_head();
    const std::int64_t kv = std::int64_t{c.kv_heads} * c.width_of_head();
    const auto projection = [&](const char* name, const char* hf_name, std::int64_t rows,
                                std::int64_t columns, bool bias) {
      whole(own + name, hf + hf_name + ".weight", {rows, columns});
      if (bias) {
        whole(own + name + "_bias", hf + hf_name + ".bias", {rows});
      }
    };
    projection("query", "q_proj", q, d, c.attention_bias);
    projection("key", "k_proj", kv, d, c.attention_bias);
    projection("value", "v_proj", kv, d, c.attention_bias);
    projection("output", "o_proj", d, q, c.output_bias);
    if (c.qk_norm != QkNorm::none) {
      const bool head = c.qk_norm == QkNorm::head;
      whole(own + "query_norm", hf + "q_norm.weight", {head ? c.width_of_head() : q});
      whole(own + "key_norm", hf + "k_norm.weight", {head ? c.width_of_head() : kv});
    }
  }

  void block(int layer) {
    const ModelConfig& c = config_;
    const std::string own = "layers." + std::to_string(layer) + ".";
    const std::string hf = layer_name(c, layer);
    const std::int64_t d = c.hidden;
    whole(own + "attention.norm", hf + "input_layernorm.weight", {d});
    attention(own + "attention.", hf + "self_attn.");
    whole(own + "mlp.norm", hf + "post_attention_layernorm.weight", {d});
    if (!c.is_moe_layer(layer)) {
      mlp(own + "mlp", hf + "mlp", c.width_of_dense());
      return;
    }
    const std::string moe = hf + (c.family == Family::mixtral ? "block_sparse_moe." : "mlp.");
    whole(own + "router", moe + "gate.weight", {c.experts, d});
    if (c.router == RouterKind::sigmoid) {
      whole(own + "router_bias", moe + "gate.e_score_correction_bias", {c.experts});
    }
    if (c.shared_experts > 0) {
      mlp(own + "shared", moe + "shared_experts", std::int64_t{c.shared_experts} * c.expert_width);
    }
  }

  std::vector<HfParameter> all() {
    const ModelConfig& c = config_;
    whole("embedding", "model.embed_tokens.weight", {c.vocabulary, c.hidden});
    for (int layer = 0; layer < c.layers; ++layer) {
      block(layer);
    }
    whole("norm", "model.norm.weight", {c.hidden});
    if (!c.tied_embeddings) {
      whole("head", "lm_head.weight", {c.vocabulary, c.hidden});
    }
    return std::move(out_);
  }

 private:
  const ModelConfig& config_;
  std::vector<HfParameter> out_;
};

}  // namespace

std::vector<HfParameter> hf_parameters(const ModelConfig& config) {
  return Names(config).all();
}

std::vector<HfTensor> hf_expert(const ModelConfig& config, int layer, int expert) {
  const std::int64_t d = config.hidden;
  const std::int64_t n = config.expert_width;
  const std::string name = experts_name(config, layer) + std::to_string(expert) + ".";
  switch (config.family) {
    case Family::own:
      return {{name + "gate_up", {2 * n, d}}, {name + "down", {d, n}}};
    case Family::mixtral:
      return {
          {name + "w1.weight", {n, d}}, {name + "w3.weight", {n, d}}, {name + "w2.weight", {d, n}}};
    default:
      return {{name + "gate_proj.weight", {n, d}},
              {name + "up_proj.weight", {n, d}},
              {name + "down_proj.weight", {d, n}}};
  }
}

std::vector<HfTensor> hf_fused_experts(const ModelConfig& config, int layer) {
  const std::int64_t d = config.hidden;
  const std::int64_t n = config.expert_width;
  const std::int64_t e = config.experts;
  const std::string name = layer_name(config, layer) + "mlp.experts.";
  return {{name + "gate_up_proj", {e, 2 * n, d}}, {name + "down_proj", {e, d, n}}};
}

}  // namespace lrmoe::model
