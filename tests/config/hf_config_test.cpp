#include "lrmoe/model/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"

namespace lrmoe::model {
namespace {

using Json = nlohmann::json;

// As the published Qwen3-30B-A3B has it.
Json qwen3() {
  return Json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// As the published GLM-4.5-Air has it.
Json glm() {
  return Json::parse(R"({
    "architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338], "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 4096, "partial_rotary_factor": 0.5,
    "initializer_range": 0.02, "intermediate_size": 10944, "max_position_embeddings": 131072,
    "model_type": "glm4_moe", "moe_intermediate_size": 1408, "norm_topk_prob": true,
    "num_attention_heads": 96, "n_group": 1, "topk_group": 1, "n_routed_experts": 128,
    "n_shared_experts": 1, "routed_scaling_factor": 1.0, "num_experts_per_tok": 8,
    "first_k_dense_replace": 1, "num_hidden_layers": 46, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.54.0", "use_cache": true, "use_qk_norm": false,
    "vocab_size": 151552})");
}

HfConfig parse(const Json& json) {
  return parse_hf_config(json.dump(), "'config.json'");
}

std::string refusal(Json json, const Json& change) {
  json.update(change);
  return testing::message_of<InputError>([&] { parse(json); });
}

TEST(HfConfig, Qwen3AsPublished) {
  const HfConfig c = parse(qwen3());
  const ModelConfig& m = c.model;
  EXPECT_EQ(m.family, Family::qwen3_moe);
  EXPECT_EQ(m.vocabulary, 151936);
  EXPECT_EQ(m.layers, 48);
  EXPECT_EQ(m.hidden, 2048);
  EXPECT_EQ(m.heads, 32);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.rotated(), 128);
  EXPECT_EQ(m.experts, 128);
  EXPECT_EQ(m.top_k, 8);
  EXPECT_EQ(m.expert_width, 768);
  EXPECT_EQ(m.shared_experts, 0);
  EXPECT_TRUE(m.dense_layers.empty());
  EXPECT_EQ(m.router, RouterKind::softmax);
  EXPECT_EQ(m.router_dtype, RouterDtype::model);
  EXPECT_TRUE(m.renormalise);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_EQ(m.norm_eps, 1e-6);
  EXPECT_EQ(m.qk_norm, QkNorm::head);
  EXPECT_FALSE(m.attention_bias);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.padding_token, -1);
  EXPECT_EQ(m.positions, 40960);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.aux_loss, 0.001);
  EXPECT_TRUE(c.notices.empty());
}

TEST(HfConfig, GlmAirAsPublished) {
  const HfConfig c = parse(glm());
  const ModelConfig& m = c.model;
  EXPECT_EQ(m.family, Family::glm4_moe);
  EXPECT_EQ(m.layers, 46);
  EXPECT_EQ(m.hidden, 4096);
  EXPECT_EQ(m.heads, 96);
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_EQ(m.head_dim, 128);  // not hidden / heads
  EXPECT_EQ(m.rotary_dim, 64);
  EXPECT_EQ(m.expert_width, 1408);
  EXPECT_EQ(m.shared_experts, 1);
  EXPECT_EQ(m.dense_layers, std::vector<int>{0});
  EXPECT_EQ(m.dense_width, 10944);
  EXPECT_EQ(m.router, RouterKind::sigmoid);
  EXPECT_EQ(m.router_dtype, RouterDtype::full);
  EXPECT_EQ(m.qk_norm, QkNorm::none);
  EXPECT_TRUE(m.attention_bias);
  EXPECT_FALSE(m.output_bias);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.padding_token, 151329);
  EXPECT_EQ(c.mtp_layers, 1);
}

TEST(HfConfig, RotaryKeysOfTransformers5) {
  Json json = glm();
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json.erase("partial_rotary_factor");
  json["rope_parameters"] = {
      {"partial_rotary_factor", 0.25}, {"rope_theta", 5e5}, {"rope_type", "default"}};
  const ModelConfig m = parse(json).model;
  EXPECT_EQ(m.rope_theta, 5e5);
  EXPECT_EQ(m.rotary_dim, 32);
  json.erase("rope_parameters");
  EXPECT_EQ(parse(json).model.rotary_dim, 64);
  EXPECT_EQ(parse(json).model.rope_theta, 1e4);
}

TEST(HfConfig, OtherNamesAndDenseLayers) {
  Json json = qwen3();
  json.erase("num_experts");
  json["num_local_experts"] = 16;
  json["num_hidden_layers"] = 6;
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1};
  json["attention_bias"] = true;
  const ModelConfig m = parse(json).model;
  EXPECT_EQ(m.experts, 16);
  EXPECT_EQ(m.dense_layers, (std::vector<int>{0, 1, 2, 4}));
  EXPECT_TRUE(m.output_bias);
}

TEST(HfConfig, WhatWouldChangeTheFunctionIsRefusedByName) {
  const auto names = [](const std::string& message, const std::string& key) {
    EXPECT_NE(message.find("'config.json': " + key), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  names(refusal(qwen3(), {{"use_sliding_window", true}, {"sliding_window", 4096}}),
        "sliding_window = 4096");
  names(refusal(qwen3(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
        "rope_scaling.rope_type = \"yarn\"");
  names(refusal(qwen3(), {{"rope_parameters", {{"rope_type", "default"}, {"factor", 4.0}}}}),
        "rope_parameters.factor = 4.0");
  names(refusal(qwen3(), {{"hidden_act", "gelu"}}), "hidden_act = \"gelu\"");
  names(refusal(qwen3(), {{"attention_dropout", 0.1}}), "attention_dropout = 0.1");
  names(refusal(qwen3(), {{"quantization_config", {{"quant_method", "fp8"}}}}),
        "quantization_config");
  names(refusal(qwen3(), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor = 0.5");
  names(refusal(qwen3(), {{"architectures", {"Qwen3MoeForTokenClassification"}}}), "architectures");
  names(refusal(qwen3(), {{"num_local_experts", 64}}), "num_local_experts = 64");
  names(refusal(qwen3(), {{"num_experts_per_tok", 129}}), "num_experts_per_tok = 129");
  names(refusal(qwen3(), {{"torch_dtype", "float8_e4m3fn"}}), "dtype");
  names(refusal(qwen3(), {{"hidden_size", -1}}), "hidden_size = -1");
  names(refusal(qwen3(), {{"hidden_size", 1e30}}), "hidden_size = 1e+30");
  names(refusal(qwen3(), {{"pad_token_id", 18446744073709551615u}}), "pad_token_id");
  names(refusal(qwen3(), {{"vocab_size", nullptr}}), "vocab_size");
  names(refusal(qwen3(), {{"num_key_value_heads", 5}}), "num_key_value_heads = 5");
  names(refusal(glm(), {{"n_group", 3}}), "n_group = 3");
  names(refusal(glm(), {{"n_group", 128}, {"topk_group", 128}}), "n_group = 128");
  names(refusal(glm(), {{"n_group", 32}, {"topk_group", 1}}), "topk_group = 1");
  names(refusal(glm(), {{"first_k_dense_replace", 46}}), "num_hidden_layers = 46");
  names(refusal(glm(), {{"model_type", "llama"}}), "model_type = 'llama'");
}

TEST(HfConfig, AllRefusalsCanBeCollected) {
  Json json = qwen3();
  json["hidden_act"] = "relu";
  json["attention_dropout"] = 0.5;
  std::vector<std::string> refused;
  parse_hf_config(json.dump(), "x", &refused);
  EXPECT_EQ(refused.size(), 2U);
}

TEST(HfConfig, UnknownKeysLeaveANotice) {
  Json json = qwen3();
  json["some_new_key"] = 3;
  const HfConfig c = parse(json);
  ASSERT_EQ(c.notices.size(), 1U);
  EXPECT_NE(c.notices[0].find("some_new_key"), std::string::npos);
}

TEST(HfConfig, NoJson) {
  for (const char* text : {"", "[", "[]", "3", "{\"model_type\": 3}"}) {
    EXPECT_THROW(parse_hf_config(text, "x"), InputError) << text;
  }
}

TEST(HfConfig, OlmoeAndMixtral) {
  const Json olmoe = Json::parse(R"({"model_type": "olmoe", "vocab_size": 50304,
    "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
    "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 4096,
    "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false, "rms_norm_eps": 1e-5,
    "clip_qkv": null, "pad_token_id": 1})");
  const ModelConfig o = parse(olmoe).model;
  EXPECT_EQ(o.qk_norm, QkNorm::whole);
  EXPECT_FALSE(o.renormalise);
  EXPECT_EQ(o.expert_width, 1024);
  EXPECT_NE(refusal(olmoe, {{"clip_qkv", 8.0}}).find("clip_qkv = 8.0"), std::string::npos);
  const Json mixtral = Json::parse(R"({"model_type": "mixtral", "vocab_size": 32000,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    "num_local_experts": 8, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
    "sliding_window": null})");
  const ModelConfig m = parse(mixtral).model;
  EXPECT_EQ(m.qk_norm, QkNorm::none);
  EXPECT_TRUE(m.renormalise);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_NE(refusal(mixtral, {{"sliding_window", 4096}}).find("sliding_window"), std::string::npos);
}

}  // namespace
}  // namespace lrmoe::model
