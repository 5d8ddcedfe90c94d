// train.freeze and train.train_only; model.path.
#include "lrmoe/train/config_freeze.h"

#include <gtest/gtest.h>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

using testing::message_of;

Config parse(const std::string& text) {
  return parse_config(text, "a.toml", {});
}

std::string refusal(const std::string& text) {
  return message_of<InputError>([&] { parse(text); });
}

TEST(FreezeConfig, PartsAreNamedByListOrAlone) {
  const Config config = parse("[train]\nfreeze = [\"router\", \"head\"]\n");
  EXPECT_FALSE(trains(config, "router"));
  EXPECT_FALSE(trains(config, "head"));
  EXPECT_TRUE(trains(config, "experts"));
  const Config only = parse("[train]\ntrain_only = \"experts\"\n");
  EXPECT_TRUE(trains(only, "experts"));
  EXPECT_FALSE(trains(only, "router"));
  EXPECT_TRUE(trains(parse("[train]\nfreeze = []\n"), "router"));
  EXPECT_EQ(parse_config(to_toml(config), "b.toml", {}).train.freeze, config.train.freeze);
  EXPECT_EQ(parse_config("", "c.toml", {"train.freeze=[\"norms\"]"}).train.freeze,
            std::vector<std::string>{"norms"});
}

TEST(FreezeConfig, EveryParameterBelongsToAPart) {
  EXPECT_EQ(part_of("embedding"), "embedding");
  EXPECT_EQ(part_of("head"), "head");
  EXPECT_EQ(part_of("norm"), "norms");
  EXPECT_EQ(part_of("layers.3.attention.norm"), "norms");
  EXPECT_EQ(part_of("layers.3.attention.query_norm"), "norms");
  EXPECT_EQ(part_of("layers.3.attention.query_bias"), "attention");
  EXPECT_EQ(part_of("layers.3.mlp.norm"), "norms");
  EXPECT_EQ(part_of("layers.3.mlp.gate_up"), "dense");
  EXPECT_EQ(part_of("layers.3.shared.down"), "shared");
  EXPECT_EQ(part_of("layers.3.router"), "router");
  EXPECT_EQ(part_of("layers.3.router_bias"), "router");
}

TEST(FreezeConfig, MistakesAreNamed) {
  EXPECT_EQ(refusal("[train]\nfreeze = [\"routers\"]\n"),
            "a.toml: train.freeze: this model has no part 'routers'; there are: embedding, "
            "attention, norms, router, experts, head");
  EXPECT_NE(refusal("[train]\ntrain_only = \"shared\"\n").find("no part 'shared'"),
            std::string::npos);
  EXPECT_NE(
      refusal("[train]\nfreeze = [\"head\"]\ntrain_only = [\"router\"]\n").find("one of them"),
      std::string::npos);
  EXPECT_NE(refusal("[train]\nfreeze = [\"embedding\", \"attention\", \"norms\", \"router\", "
                    "\"experts\", \"head\"]\n")
                .find("leaves nothing to train"),
            std::string::npos);
  EXPECT_NE(refusal("[train]\nfreeze = [1]\n").find("a list of names"), std::string::npos);
}

constexpr const char* kQwen = R"({"model_type": "qwen3_moe", "vocab_size": 100,
 "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "head_dim": 16, "moe_intermediate_size": 24, "intermediate_size": 64, "num_experts": 8,
 "num_experts_per_tok": 2, "norm_topk_prob": true, "max_position_embeddings": 4096,
 "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "hidden_act": "silu"})";

TEST(ModelPath, GivesTheModelsDimensions) {
  const testing::TemporaryFolder folder;
  write_file(folder / "config.json", kQwen);
  const std::string path = folder.path().string();
  const std::string section = "[model]\npath = \"" + path + "\"\n";
  const std::string rest = "[train]\ntokens_per_step = 8192\n";
  const Config config = parse(section + rest);
  EXPECT_EQ(config.model_path, path);
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.vocabulary, 100);
  EXPECT_EQ(config.model.width_of_head(), 16);
  EXPECT_EQ(config.model.sequence, 2048);
  EXPECT_EQ(parse(section + "sequence = 64\nlayers = 2\n" + rest).model.sequence, 64);
  EXPECT_EQ(to_toml(parse_config(to_toml(config), "b.toml", {})), to_toml(config));
}

TEST(ModelPath, IsNotContradicted) {
  const testing::TemporaryFolder folder;
  write_file(folder / "config.json", kQwen);
  const std::string path = folder.path().string();
  const std::string section = "[model]\npath = \"" + path + "\"\n";
  EXPECT_EQ(refusal(section + "experts = 16\n"),
            "a.toml:3: model.experts = 16 contradicts '" + path +
                "/config.json', which gives 8; leave the key out");
  EXPECT_NE(refusal(section + "preset = \"demo\"\n").find("model.preset and model.path"),
            std::string::npos);
  EXPECT_NE(refusal(section + "sequence = 5000\n").find("at most 4096"), std::string::npos);
  EXPECT_NE(refusal("[model]\npath = \"" + path + "/none\"\n").find("none"), std::string::npos);
}

}  // namespace
}  // namespace lrmoe::train
