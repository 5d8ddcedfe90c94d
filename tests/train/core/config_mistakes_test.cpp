// What a wrong configuration is told: one line that says what, where, and what is right.
#include "lrmoe/train/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lrmoe/base/error.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/config_fields.h"
#include "tests/train/core/config_helpers.h"

namespace lrmoe::train {
namespace {

TEST(Config, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(
      message_of("[train]\nsteps = 1\nlerning_rate = 1.0\n")
          .find("a.toml:3: unknown key 'lerning_rate' in [train]; did you mean 'learning_rate'? "
                "[train] takes: steps, "),
      0U);
  EXPECT_EQ(message_of("[trian]\nsteps = 1\n"),
            "a.toml:1: unknown section [trian]; did you mean [train]? Sections are: data, model, "
            "train, parallel, strategy, lrmoe, clock, memory, trace");
  EXPECT_EQ(message_of("[trian]\n"), message_of("[trian]\nsteps = 1\n").replace(7, 1, "1"));
  EXPECT_EQ(message_of("[train]\nlayers = 1\n"),
            "a.toml:2: unknown key 'layers' in [train]; it belongs to [model]");
  EXPECT_EQ(message_of("layers = 1\n"),
            "a.toml:1: the key 'layers' stands outside a section; it belongs to [model]");
  EXPECT_EQ(message_of("train = 1\n"),
            "a.toml:1: train is a section: write [train] and its keys below it");
  EXPECT_EQ(message_of("nonsense = 1\n").find("a.toml:1: unknown key 'nonsense' outside a section"),
            0U);
  EXPECT_EQ(message_of("", {"train.stps=1"})
                .find("--set train.stps=1: unknown key 'stps' in [train]; did you mean 'steps'?"),
            0U);
  EXPECT_EQ(message_of("[train.steps]\nx = 1\n"),
            "a.toml:1: train.steps = x = 1 will not do; it takes a whole number, at least 1");
  EXPECT_EQ(message_of("[[train]]\nsteps = 1\n"),
            "a.toml:1: train is a section: write [train] and its keys below it");
}

TEST(Config, WrongTypesAndRangesSayWhatWouldBeRight) {
  const auto wrong = [](const std::string& key, const std::string& value) {
    return message_of("", {key + "=" + value});
  };
  EXPECT_EQ(
      wrong("train.steps", "0"),
      "--set train.steps=0: train.steps = 0 will not do; it takes a whole number, at least 1");
  EXPECT_EQ(message_of("\n\n[train]\nsteps = \"ten\"\n"),
            "a.toml:4: train.steps = \"ten\" will not do; it takes a whole number, at least 1");
  EXPECT_EQ(message_of("[train]\nsteps = 1.5\n"),
            "a.toml:2: train.steps = 1.5 will not do; it takes a whole number, at least 1");
  EXPECT_NE(wrong("train.steps", "ten").find("train.steps = ten will not do"), std::string::npos);
  EXPECT_NE(wrong("train.learning_rate", "0").find("it takes a number above 0"), std::string::npos);
  EXPECT_NE(wrong("train.learning_rate", "nan").find("it takes a number above 0"),
            std::string::npos);
  EXPECT_NE(wrong("train.learning_rate", "inf").find("it takes a number above 0"),
            std::string::npos);
  EXPECT_NE(wrong("train.beta1", "1").find("it takes a number at least 0 and below 1"),
            std::string::npos);
  EXPECT_NE(wrong("train.final_rate", "1.01").find("it takes a number at least 0 and at most 1"),
            std::string::npos);
  EXPECT_NE(wrong("data.validation_fraction", "1").find("at least 0 and below 1"),
            std::string::npos);
  EXPECT_NE(
      wrong("data.path", "7")
          .find("it takes a file (text, .npy, .bin or .jsonl) or a folder of them, in quotes"),
      std::string::npos);
  EXPECT_NE(wrong("model.router", "relu").find("it takes 'softmax' or 'sigmoid'"),
            std::string::npos);
  EXPECT_NE(wrong("train.dtype", "float16").find("it takes 'float32' or 'bfloat16'"),
            std::string::npos);
  EXPECT_NE(wrong("model.renormalise", "1").find("it takes true or false"), std::string::npos);
  EXPECT_NE(wrong("model.dense_layers", "[1, \"a\"]").find("it takes a list of whole numbers"),
            std::string::npos);
  EXPECT_NE(wrong("model.dense_layers", "[-1]").find("it takes a list of whole numbers from 0"),
            std::string::npos);
  EXPECT_NE(wrong("model.experts", "5000").find("at least 1 and at most 4096"), std::string::npos);
  EXPECT_NE(wrong("train.accumulation", "5000000000").find("a whole number"), std::string::npos);
  EXPECT_NE(wrong("train.seed", "-1").find("a whole number, at least 0"), std::string::npos);
  EXPECT_NE(wrong("strategy.capacity_factor", "0").find("a number above 0, or inf"),
            std::string::npos);
  EXPECT_NE(wrong("strategy.capacity_factor", "-inf").find("a number above 0, or inf"),
            std::string::npos);
  EXPECT_NE(wrong("train.steps", "2024-01-01").find("a whole number, at least 1"),
            std::string::npos);
}

TEST(Config, BrokenSettingsAndSyntax) {
  EXPECT_EQ(message_of("[train\nsteps = 1\n").find("a.toml:1:7: not TOML: "), 0U);
  EXPECT_EQ(message_of("[train]\nsteps = 1\nsteps = 2\n").find("a.toml:3:"), 0U);
  EXPECT_EQ(message_of(std::string("\xff\xfe[train]\n", 10)).find("a.toml:1:1: not TOML"), 0U);
  const std::string how = ": a setting is written section.key=value, as in train.steps=100";
  EXPECT_EQ(message_of("", {"train.steps"}), "--set train.steps" + how);
  EXPECT_EQ(message_of("", {"steps=3"}), "--set steps=3" + how);
  EXPECT_EQ(message_of("", {""}), "--set " + how);
  EXPECT_EQ(message_of("", {"data.path=\"x"}).find("--set data.path=\"x: not a TOML value: "), 0U);
  EXPECT_NE(message_of("", {"train.steps=1\nseed=2"}).find("it takes a whole number"),
            std::string::npos);
  EXPECT_EQ(message_of("", {"data.path=\xff"}).find("--set data.path=\xff: the value is not UTF-8"),
            0U);
}

TEST(Config, ChecksThatConcernSeveralKeys) {
  EXPECT_EQ(message_of("[model]\nexperts = 8\ntop_k = 9\n"),
            "a.toml: model.top_k = 9 is more than model.experts = 8; a token can choose at most 8 "
            "of them");
  EXPECT_EQ(message_of("", {"parallel.ranks=4", "parallel.slots=7"}),
            "a.toml: parallel.slots = 7 on parallel.ranks = 4 cannot hold model.experts = 32; the "
            "smallest that would do: parallel.slots = 8");
  EXPECT_EQ(message_of("", {"train.tokens_per_step=4000"}),
            "a.toml: train.tokens_per_step = 4000 is no multiple of model.sequence = 256 times "
            "train.accumulation = 1; the nearest that is: 4096");
  EXPECT_EQ(
      message_of("", {"train.tokens_per_step=1024", "train.accumulation=2", "parallel.ranks=4"}),
      "a.toml: train.tokens_per_step = 1024 leaves some of the ranks without a sequence "
      "(parallel.ranks = 4, model.sequence = 256 times train.accumulation = 2); it takes at "
      "least 2048");
  EXPECT_EQ(message_of("", {"train.evaluate_tokens=255"}),
            "a.toml: train.evaluate_tokens = 255 is less than one sequence; it takes at least "
            "model.sequence = 256");
  EXPECT_EQ(message_of("", {"model.heads=3"}),
            "a.toml: model.hidden = 128 is no multiple of model.heads = 3; try model.hidden = 132");
  EXPECT_EQ(message_of("", {"model.hidden=132"}),
            "a.toml: model.hidden / model.heads = 33 is odd; a head needs an even width, as with "
            "model.hidden = 136");
  EXPECT_EQ(message_of("", {"model.kv_heads=3"}),
            "a.toml: model.heads = 4 is no multiple of model.kv_heads = 3; model.kv_heads must "
            "divide model.heads");
  EXPECT_EQ(message_of("", {"model.dense_layers=[4]"}),
            "a.toml: model.dense_layers names layer 4, but with model.layers = 4 the last is 3");
  EXPECT_EQ(message_of("", {"model.dense_layers=[1, 1]"}),
            "a.toml: model.dense_layers names layer 1 twice; name each dense layer once");
  EXPECT_EQ(message_of("", {"parallel.engine=mpi"}),
            "a.toml: parallel.engine = 'mpi' is not available; this program was built with: "
            "threads");
  EXPECT_EQ(
      message_of("", {"strategy.name=simy"})
          .find("a.toml: strategy.name = 'simy' is not a strategy (nearest: 'symi'); there are: "),
      0U);
}

TEST(Config, SuggestedValuesAreRight) {
  EXPECT_EQ(message_of("", {"model.heads=3", "model.kv_heads=3", "model.hidden=132"}), "no error");
  EXPECT_EQ(message_of("", {"model.hidden=136"}), "no error");
  EXPECT_EQ(message_of("", {"parallel.ranks=4", "parallel.slots=8"}), "no error");
}

TEST(Config, PlacementIsOfTheNextStepOrOfThisOne) {
  EXPECT_EQ(parse("[lrmoe]\nplacement = \"next-step\"\n").strategy.lrmoe.placing,
            plan::Placing::next_step);
  EXPECT_EQ(message_of("[lrmoe]\nplacement = \"this-step\"\n"),
            "a.toml:2: lrmoe.placement = \"this-step\" will not do; it takes 'next-step' "
            "or 'in-step'");
}

TEST(Config, FilesThatCannotBeRead) {
  try {
    load_config("/nowhere/x.toml", {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "cannot read '/nowhere/x.toml': No such file or directory");
  }
  EXPECT_THROW(load_config(std::filesystem::temp_directory_path(), {}), InputError);
}

TEST(Config, ResumeNamesTheKeyThatMayNotChange) {
  Config before;
  Config now = before;
  now.train.steps = 999;
  now.data.path = "elsewhere";
  EXPECT_EQ(changed_on_resume(before, now), "");
  now.model.layers = 6;
  EXPECT_EQ(changed_on_resume(before, now), "model.layers = 4 (now 6)");
}

}  // namespace
}  // namespace lrmoe::train
