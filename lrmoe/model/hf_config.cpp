#include "lrmoe/model/hf_config.h"

#include <array>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/model/hf_config_keys.h"

namespace lrmoe::model {

namespace {

constexpr std::array<std::pair<std::string_view, Family>, 4> kFamilies{
    {{"qwen3_moe", Family::qwen3_moe},
     {"glm4_moe", Family::glm4_moe},
     {"olmoe", Family::olmoe},
     {"mixtral", Family::mixtral}}};

constexpr std::int64_t kMost = 1 << 20;

// Read by nothing that computes logits or gradients.
const std::vector<std::string>& harmless() {
  static const std::vector<std::string> keys{"transformers_version",
                                             "use_cache",
                                             "bos_token_id",
                                             "eos_token_id",
                                             "_name_or_path",
                                             "name_or_path",
                                             "auto_map",
                                             "max_window_layers",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "return_dict",
                                             "id2label",
                                             "label2id",
                                             "num_labels",
                                             "task_specific_params",
                                             "problem_type",
                                             "attn_implementation",
                                             "_attn_implementation",
                                             "experts_implementation",
                                             "_experts_implementation",
                                             "pretraining_tp",
                                             "chunk_size_feed_forward",
                                             "is_encoder_decoder"};
  return keys;
}

void read_common(Keys& keys, HfConfig& out) {
  ModelConfig& m = out.model;
  m.vocabulary = keys.integer("vocab_size", 1, kMost);
  m.layers = keys.integer("num_hidden_layers", 1, 1024);
  m.hidden = keys.integer("hidden_size", 1, 65536);
  m.heads = keys.integer("num_attention_heads", 1, 1024);
  m.kv_heads = keys.integer("num_key_value_heads", 1, 1024, m.heads);
  m.head_dim = keys.integer("head_dim", 1, 65536, 0);
  m.top_k = keys.integer("num_experts_per_tok", 1, 4096);
  m.sequence = m.positions = keys.integer("max_position_embeddings", 1, 1 << 24);
  m.norm_eps = keys.number("rms_norm_eps");
  m.init_std = keys.number("initializer_range", 0.02);
  m.tied_embeddings = keys.flag("tie_word_embeddings", false);
  m.padding_token = keys.integer("pad_token_id", -kMost, kMost, -1);
  if (m.padding_token >= m.vocabulary) {
    keys.refuse("pad_token_id", "the vocabulary has " + std::to_string(m.vocabulary) + " tokens");
  }
  out.uses_aux_loss = keys.flag("output_router_logits", false);
  keys.only("hidden_act", "silu", "silu");
  keys.zero("attention_dropout");
  keys.null("quantization_config");
}

void read_rotary(Keys& keys, ModelConfig& m, double theta, double fraction) {
  // Transformers 5 keeps all of it in rope_parameters; before, in keys of their own.
  m.rope_theta = keys.number("rope_theta", theta);
  fraction = keys.number("partial_rotary_factor", fraction);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (auto rope = keys.object(name)) {
      m.rope_theta = rope->number("rope_theta", m.rope_theta);
      fraction = rope->number("partial_rotary_factor", fraction);
      rope->only("rope_type", "default", "default");
      rope->only("type", "default", "default");
      rope->refuse_rest("other types of rotary positions than the default one are not computed");
    }
  }
  if (!(m.rope_theta > 0)) {
    keys.refuse("rope_theta", "it must be above 0");
  }
  if (!(fraction > 0 && fraction <= 1) || (m.family != Family::glm4_moe && fraction != 1.0)) {
    keys.refuse("partial_rotary_factor", m.family == Family::glm4_moe
                                             ? "it is a share of each head, above 0 and at most 1"
                                             : "this family rotates whole heads");
  }
  if (m.head_dim == 0 && (m.heads == 0 || m.hidden % m.heads != 0)) {
    keys.refuse("head_dim", "without it, num_attention_heads must divide hidden_size");
    return;
  }
  m.head_dim = m.width_of_head();
  m.rotary_dim = static_cast<int>(m.head_dim * fraction);
  if (m.rotary_dim % 2 != 0 || m.rotary_dim == 0) {
    keys.refuse("head_dim", std::to_string(m.rotary_dim) +
                                " elements of a head would be rotated; it takes an even number");
  }
  if (m.kv_heads == 0 || m.heads % m.kv_heads != 0) {
    keys.refuse("num_key_value_heads", "it must divide num_attention_heads");
  }
}

void read_attention_bias(Keys& keys, ModelConfig& m) {
  m.attention_bias = keys.flag("attention_bias", false);
  m.output_bias = m.attention_bias && m.family != Family::glm4_moe;
}

// Softmax over logits in the model's dtype.
void read_softmax_router(Keys& keys, HfConfig& out) {
  out.model.router = RouterKind::softmax;
  out.model.router_dtype = RouterDtype::model;
  out.aux_loss = keys.number("router_aux_loss_coef", 0.001);
}

void read_qwen3(Keys& keys, HfConfig& out) {
  ModelConfig& m = out.model;
  m.experts = keys.integer(keys.alias("num_experts", "num_local_experts"), 1, 4096);
  m.expert_width = keys.integer("moe_intermediate_size", 1, 65536);
  m.dense_width = keys.integer("intermediate_size", 1, kMost);
  m.renormalise = keys.flag("norm_topk_prob", false);
  m.qk_norm = QkNorm::head;
  read_softmax_router(keys, out);
  read_rotary(keys, m, 10000.0, 1.0);
  read_attention_bias(keys, m);
  const std::vector<int> dense = keys.integers("mlp_only_layers");
  const int step = keys.integer("decoder_sparse_step", 1, 1024, 1);
  for (int layer = 0; layer < m.layers; ++layer) {
    if ((layer + 1) % step != 0 || std::find(dense.begin(), dense.end(), layer) != dense.end()) {
      m.dense_layers.push_back(layer);
    }
  }
  // Transformers forgets the window where it is not used.
  if (keys.flag("use_sliding_window", false)) {
    keys.null("sliding_window");
  } else {
    keys.pass("sliding_window");
  }
}

void read_glm4(Keys& keys, HfConfig& out) {
  ModelConfig& m = out.model;
  m.experts = keys.integer(keys.alias("n_routed_experts", "num_local_experts"), 1, 4096);
  m.expert_width = keys.integer("moe_intermediate_size", 1, 65536);
  m.dense_width = keys.integer("intermediate_size", 1, kMost);
  m.shared_experts = keys.integer("n_shared_experts", 0, 1024, 1);
  m.renormalise = keys.flag("norm_topk_prob", true);
  m.routed_scale = keys.number("routed_scaling_factor", 1.0);
  m.router = RouterKind::sigmoid;
  m.router_dtype = RouterDtype::full;
  m.bias_rate = 0.0;  // Transformers leaves the bias as it is
  m.qk_norm = keys.flag("use_qk_norm", false) ? QkNorm::head : QkNorm::none;
  m.groups = keys.integer("n_group", 1, 4096, 1);
  m.top_groups = keys.integer("topk_group", 1, 4096, 1);
  read_rotary(keys, m, 10000.0, 0.5);
  read_attention_bias(keys, m);
  const int dense = keys.integer("first_k_dense_replace", 0, 1024, 1);
  for (int layer = 0; layer < std::min(dense, m.layers); ++layer) {
    m.dense_layers.push_back(layer);
  }
  out.mtp_layers = keys.integer(keys.alias("num_nextn_predict_layers", "num_mtp_layers"), 0, 64, 1);
  if (m.experts % m.groups != 0) {
    keys.refuse("n_group", "it must divide the number of experts");
  } else if (m.experts / m.groups < 2) {
    keys.refuse("n_group", "a group is judged by its best two experts and must have as many");
  }
  if (m.top_groups > m.groups) {
    keys.refuse("topk_group", "there are n_group = " + std::to_string(m.groups) + " groups");
  } else if (m.top_k > m.experts / m.groups * m.top_groups) {
    keys.refuse("topk_group", "so few groups have less than num_experts_per_tok experts");
  }
}

void read_olmoe(Keys& keys, HfConfig& out) {
  ModelConfig& m = out.model;
  m.experts = keys.integer(keys.alias("num_experts", "num_local_experts"), 1, 4096);
  m.expert_width = keys.integer("intermediate_size", 1, 65536);
  m.renormalise = keys.flag("norm_topk_prob", false);
  m.qk_norm = QkNorm::whole;
  read_softmax_router(keys, out);
  read_rotary(keys, m, 10000.0, 1.0);
  read_attention_bias(keys, m);
  keys.null("clip_qkv");
  keys.null("sliding_window");
  if (m.head_dim * m.heads != m.hidden) {
    keys.refuse("head_dim", "this family's heads together are as wide as hidden_size");
  }
}

void read_mixtral(Keys& keys, HfConfig& out) {
  ModelConfig& m = out.model;
  m.experts = keys.integer(keys.alias("num_local_experts", "num_experts"), 1, 4096);
  m.expert_width = keys.integer("intermediate_size", 1, 65536);
  m.renormalise = true;
  read_softmax_router(keys, out);
  read_rotary(keys, m, 1e6, 1.0);
  keys.null("sliding_window");
  keys.zero("router_jitter_noise");
}

std::string read_dtype(Keys& keys) {
  const std::string dtype = keys.text(keys.alias("dtype", "torch_dtype"), "float32");
  if (dtype != "float32" && dtype != "bfloat16" && dtype != "float16") {
    keys.refuse("dtype", "there are: float32, bfloat16, float16");
  }
  return dtype;
}

void read_architecture(Keys& keys, Family family) {
  const std::vector<std::string> names = keys.texts("architectures");
  const std::string wanted = architecture(family);
  for (const std::string& name : names) {
    if (name != wanted) {
      keys.refuse("architectures", "of this model type only " + wanted + " is computed");
    }
  }
}

}  // namespace

std::vector<std::string> hf_families() {
  std::vector<std::string> names;
  for (const auto& [name, family] : kFamilies) {
    names.emplace_back(name);
  }
  return names;
}

std::string family_name(Family family) {
  for (const auto& [name, known] : kFamilies) {
    if (known == family) {
      return std::string(name);
    }
  }
  return "own";
}

std::string architecture(Family family) {
  switch (family) {
    case Family::qwen3_moe:
      return "Qwen3MoeForCausalLM";
    case Family::glm4_moe:
      return "Glm4MoeForCausalLM";
    case Family::olmoe:
      return "OlmoeForCausalLM";
    case Family::mixtral:
      return "MixtralForCausalLM";
    case Family::own:
      break;
  }
  return "";
}

HfConfig parse_hf_config(std::string_view text, const std::string& name,
                         std::vector<std::string>* refused) {
  Keys keys(text, name, refused);
  HfConfig out;
  const std::string type = keys.text("model_type", "");
  const auto* family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                    [&](const auto& known) { return known.first == type; });
  if (family == kFamilies.end()) {
    throw InputError(name + ": model_type = " + quote(type) + " is not a model type that this " +
                     "program knows; there are: " + join(hf_families()));
  }
  out.model.family = family->second;
  read_architecture(keys, family->second);
  out.dtype = read_dtype(keys);
  read_common(keys, out);
  switch (family->second) {
    case Family::qwen3_moe:
      read_qwen3(keys, out);
      break;
    case Family::glm4_moe:
      read_glm4(keys, out);
      break;
    case Family::olmoe:
      read_olmoe(keys, out);
      break;
    default:
      read_mixtral(keys, out);
  }
  if (out.model.top_k > out.model.experts) {
    keys.refuse("num_experts_per_tok",
                "there are " + std::to_string(out.model.experts) + " experts");
  }
  for (const std::string& key : harmless()) {
    keys.pass(key);
  }
  const std::vector<std::string> unknown = keys.unread();
  if (!unknown.empty()) {
    out.notices.push_back(name + ": not known and not looked at: " + join(unknown));
  }
  if (out.model.dense_layers.size() == static_cast<std::size_t>(out.model.layers)) {
    keys.refuse("num_hidden_layers", "none of the layers would have experts");
  }
  return out;
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_hf_config(read_text(path), quote(path.string()));
}

bool is_hf_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder / "config.json", ignored);
}

}  // namespace lrmoe::model
