#include "lrmoe/train/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lrmoe/base/error.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {
namespace {

Config parse(const std::string& text, const std::vector<std::string>& settings = {}) {
  return parse_config(text, "a.toml", settings);
}

/// The message of the InputError that `text` and `settings` give.
std::string message_of(const std::string& text, const std::vector<std::string>& settings = {}) {
  try {
    parse(text, settings);
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Config, EmptyTextGivesTheDefaults) {
  const Config config = parse("");
  EXPECT_EQ(to_toml(config), to_toml(Config{}));
  EXPECT_EQ(config.train.steps, 300);
}

TEST(Config, EveryKeyReachesItsMember) {
  const Config c = parse(R"(
[data]
path = "x.txt"
validation_fraction = 0.25
[model]
vocabulary = 300
layers = 3
hidden = 48
heads = 6
kv_heads = 3
experts = 6
top_k = 3
expert_width = 20
shared_experts = 2
dense_layers = [0, 2]
dense_width = 50
router = "sigmoid"
renormalise = false
routed_scale = 2.5
bias_rate = 0.01
sequence = 32
rope_theta = 500
norm_eps = 1e-5
init_std = 0.01
[train]
steps = 7
tokens_per_step = 256
seed = 9
learning_rate = 0.125
warmup = 3
final_rate = 0.5
weight_decay = 0
beta1 = 0.8
beta2 = 0.99
clip = 0.5
aux_loss = 0.01
accumulation = 2
dtype = "bfloat16"
checkpoint_every = 5
keep = 4
evaluate_every = 6
evaluate_tokens = 64
[parallel]
engine = "threads"
ranks = 2
slots = 5
[strategy]
name = "symi"
capacity_factor = 1.5
[lrmoe]
ratio = 0.5
variance = 0.75
mode = "top"
metric = "gate-grad"
shortlist = 0.6
shortlist_by = "output"
router_gradient = "exact"
activations = "recompute"
floor = 0.05
slack = 0.1
variance_limit = 0.3
audit_every = 25
[clock]
profile = "h200-ib"
shape = "glm-4.5-air"
scale = 32
ranks_per_node = 4
)");
  EXPECT_EQ(c.data.path, "x.txt");
  EXPECT_EQ(c.data.validation_fraction, 0.25);
  EXPECT_EQ(c.model.vocabulary, 300);
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.model.hidden, 48);
  EXPECT_EQ(c.model.heads, 6);
  EXPECT_EQ(c.model.kv_heads, 3);
  EXPECT_EQ(c.model.experts, 6);
  EXPECT_EQ(c.model.top_k, 3);
  EXPECT_EQ(c.model.expert_width, 20);
  EXPECT_EQ(c.model.shared_experts, 2);
  EXPECT_EQ(c.model.dense_layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(c.model.dense_width, 50);
  EXPECT_EQ(c.model.router, model::RouterKind::sigmoid);
  EXPECT_FALSE(c.model.renormalise);
  EXPECT_EQ(c.model.routed_scale, 2.5);
  EXPECT_EQ(c.model.bias_rate, 0.01);
  EXPECT_EQ(c.model.sequence, 32);
  EXPECT_EQ(c.model.rope_theta, 500.0);
  EXPECT_EQ(c.model.norm_eps, 1e-5);
  EXPECT_EQ(c.model.init_std, 0.01);
  EXPECT_EQ(c.train.steps, 7);
  EXPECT_EQ(c.train.tokens_per_step, 256);
  EXPECT_EQ(c.train.seed, 9U);
  EXPECT_EQ(c.train.learning_rate, 0.125);
  EXPECT_EQ(c.train.warmup, 3);
  EXPECT_EQ(c.train.final_rate, 0.5);
  EXPECT_EQ(c.train.weight_decay, 0.0);
  EXPECT_EQ(c.train.beta1, 0.8);
  EXPECT_EQ(c.train.beta2, 0.99);
  EXPECT_EQ(c.train.clip, 0.5);
  EXPECT_EQ(c.train.aux_loss, 0.01);
  EXPECT_EQ(c.train.accumulation, 2);
  EXPECT_EQ(c.train.dtype, Dtype::bfloat16);
  EXPECT_EQ(c.train.checkpoint_every, 5);
  EXPECT_EQ(c.train.keep, 4);
  EXPECT_EQ(c.train.evaluate_every, 6);
  EXPECT_EQ(c.train.evaluate_tokens, 64);
  EXPECT_EQ(c.parallel.engine, "threads");
  EXPECT_EQ(c.parallel.ranks, 2);
  EXPECT_EQ(c.parallel.slots, 5);
  EXPECT_EQ(c.strategy.name, "symi");
  EXPECT_EQ(c.strategy.capacity_factor, 1.5);

  EXPECT_EQ(c.strategy.lrmoe,
            (plan::LrmoeOptions{0.5, 0.75, plan::SelectMode::top, plan::Metric::gate_grad, 0.6,
                                plan::ShortlistBy::output, plan::RouterGradient::exact,
                                plan::Activations::recompute, 0.05, 0.3, 0.1}));
  EXPECT_EQ(c.lrmoe.audit_every, 25);
  EXPECT_EQ(c.clock.profile, "h200-ib");
  EXPECT_EQ(c.clock.shape, "glm-4.5-air");
  EXPECT_EQ(c.clock.scale, 32.0);
  EXPECT_EQ(c.clock.ranks_per_node, 4);

  // Nothing is left at its default above, so the round trip covers every key.
  const Config defaults;
  for (const Field& field : config_fields()) {
    // Keys that take one value only cannot differ.
    if (field.key != "preset" && field.key != "engine" && field.key != "placement") {
      EXPECT_NE(field.get(c), field.get(defaults)) << field.name();
    }
  }
  const Config again = parse(to_toml(c));
  for (const Field& field : config_fields()) {
    EXPECT_EQ(field.get(c), field.get(again)) << field.name();
  }
  EXPECT_EQ(to_toml(again), to_toml(c));
}

TEST(Config, RoundTripKeepsAwkwardValues) {
  Config c;
  c.data.path = "a \"b\" \\ c\td\ne\x01 \xc3\xa9";
  c.train.learning_rate = 0.1 + 0.2;
  c.train.aux_loss = 5e-324;
  c.train.weight_decay = 1e300;
  c.train.seed = 9223372036854775807ULL;
  c.strategy.capacity_factor = std::numeric_limits<double>::infinity();
  const Config again = parse(to_toml(c));
  EXPECT_EQ(again.data.path, c.data.path);
  EXPECT_EQ(again.train.learning_rate, c.train.learning_rate);
  EXPECT_EQ(again.train.aux_loss, c.train.aux_loss);
  EXPECT_EQ(again.train.weight_decay, c.train.weight_decay);
  EXPECT_EQ(again.train.seed, c.train.seed);
  EXPECT_EQ(again.strategy.capacity_factor, c.strategy.capacity_factor);
}

TEST(Config, PresetGivesDefaultsThatOtherKeysOverride) {
  const Config c = parse("[model]\nhidden = 64\npreset = \"tiny\"\n", {"model.layers=5"});
  EXPECT_EQ(c.model.hidden, 64);
  EXPECT_EQ(c.model.layers, 5);
  EXPECT_EQ(c.model.experts, 8);
  EXPECT_EQ(c.model.top_k, 2);
  EXPECT_EQ(parse("[model]\npreset = \"tiny\"\n", {"model.preset=demo"}).model.experts, 32);
  EXPECT_EQ(to_toml(c).find("preset"), std::string::npos);
  EXPECT_EQ(message_of("[model]\npreset = \"tinny\"\n"),
            "a.toml:2: model.preset = \"tinny\" will not do; it takes one of tiny, demo");
}

TEST(Config, SettingsApplyInOrderAndAfterTheFile) {
  const Config c =
      parse("[train]\nsteps = 1\n",
            {"train.steps=2", "train.steps = 3", "data.path=/a b/c.txt", "strategy.name=symi",
             "strategy.capacity_factor=inf", "model.dense_layers=[1]", "train.learning_rate=1"});
  EXPECT_EQ(c.train.steps, 3);
  EXPECT_EQ(c.data.path, "/a b/c.txt");
  EXPECT_EQ(c.strategy.name, "symi");
  EXPECT_TRUE(std::isinf(c.strategy.capacity_factor));
  EXPECT_EQ(c.model.dense_layers, std::vector<int>{1});
  EXPECT_EQ(c.train.learning_rate, 1.0);
}

TEST(Config, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(
      message_of("[train]\nsteps = 1\nlerning_rate = 1.0\n")
          .find("a.toml:3: unknown key 'lerning_rate' in [train]; did you mean 'learning_rate'? "
                "[train] takes: steps, "),
      0U);
  EXPECT_EQ(message_of("[trian]\nsteps = 1\n"),
            "a.toml:1: unknown section [trian]; did you mean [train]? Sections are: data, model, "
            "train, parallel, strategy, lrmoe, clock");
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
  EXPECT_NE(wrong("data.path", "7").find("it takes a text file or a folder, in quotes"),
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

TEST(Config, SlotsOfAutomaticAndOwningStrategies) {
  const auto slots = [](const std::string& strategy, int ranks, int set) {
    return parse("[model]\npreset = \"tiny\"\n",
                 {"strategy.name=" + strategy, "parallel.ranks=" + std::to_string(ranks),
                  "parallel.slots=" + std::to_string(set)})
        .slots();
  };
  EXPECT_EQ(slots("fixed", 3, 0), 3);
  EXPECT_EQ(slots("fixed", 3, 5), 3);
  EXPECT_EQ(slots("fixed-capacity", 8, 0), 1);
  EXPECT_EQ(slots("symi", 3, 0), 5);
  EXPECT_EQ(slots("symi", 3, 4), 4);
  EXPECT_EQ(slots("symi", 1, 12), 12);
}

TEST(Config, TheClockIsMeasuredOrAProfile) {
  EXPECT_FALSE(virtual_clock(parse("")).has_value());
  EXPECT_EQ(clock_name(parse("")), "measured");
  EXPECT_EQ(parse("[clock]\nprofile = \"\"\n").clock.profile, "measured");
  const Config c = parse("[clock]\nprofile = \"a100-ib\"\nscale = 8\n", {"train.dtype=bfloat16"});
  EXPECT_EQ(clock_name(c), "virtual:a100-ib");
  const auto own = virtual_clock(c);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->profile.name, "a100-ib");
  EXPECT_EQ(own->scale, 8.0);
  EXPECT_EQ(own->ranks_per_node, -1);
  EXPECT_EQ(own->shape.name, "own");
  EXPECT_EQ(own->shape.hidden, 128);
  EXPECT_EQ(own->shape.width, 64);
  EXPECT_EQ(own->shape.experts, 32);
  EXPECT_EQ(own->shape.top_k, 4);
  EXPECT_EQ(own->shape.layers, 4);
  EXPECT_EQ(own->shape.element_bytes, 2);
  Config other = c;
  other.clock.shape = "qwen3-30b-a3b";
  EXPECT_EQ(virtual_clock(other)->shape.hidden, 2048);

  EXPECT_EQ(message_of("[clock]\nprofile = \"h100\"\n"),
            "a.toml:2: clock.profile = \"h100\" will not do; it takes measured (wall time) or one "
            "of h200-nvlink, h200-ib, a100-ib, this-machine");
  EXPECT_EQ(
      message_of("", {"clock.shape=qwen3"})
          .find("--set clock.shape=qwen3: clock.shape = qwen3 will not do; it takes one of own, "
                "qwen3-30b-a3b"),
      0U);
  EXPECT_EQ(message_of("", {"clock.scale=0"}),
            "--set clock.scale=0: clock.scale = 0 will not do; it takes a number above 0 "
            "and at most 1000000");
  EXPECT_NE(message_of("", {"clock.scale=inf"}).find("a number above 0"), std::string::npos);
  EXPECT_NE(message_of("", {"clock.ranks_per_node=-2"}).find("-1 for the profile's"),
            std::string::npos);
  EXPECT_EQ(message_of("", {"clock.profile=this-machine", "clock.scale=2"}),
            "a.toml: [clock] profile 'this-machine' prices measured seconds, so shape must be "
            "\"own\" and scale 1");
}

TEST(Config, PlacingWithinTheStepIsNotBuiltYet) {
  EXPECT_EQ(parse("[lrmoe]\nplacement = \"next-step\"\n").lrmoe.placement, Placing::next_step);
  EXPECT_EQ(message_of("[lrmoe]\nplacement = \"in-step\"\n"),
            "a.toml:2: lrmoe.placement = \"in-step\" will not do; it takes 'next-step' ('in-step', "
            "placing within the step, is not built yet)");
}

TEST(Config, StrategySpecifications) {
  const Config base = parse("[strategy]\nname = \"fixed\"\ncapacity_factor = 1.25\n");
  EXPECT_EQ(with_strategy(base, "symi").strategy.name, "symi");
  EXPECT_EQ(with_strategy(base, "symi").strategy.capacity_factor, 1.25);
  EXPECT_TRUE(std::isinf(with_strategy(base, "symi:capacity_factor=inf").strategy.capacity_factor));
  EXPECT_EQ(with_strategy(base, "fixed-capacity:capacity_factor=2").strategy.capacity_factor, 2.0);
  EXPECT_EQ(with_strategy(base, "lrmoe:ratio=0.5:metric=gate").strategy.lrmoe.ratio, 0.5);
  EXPECT_EQ(with_strategy(base, "lrmoe:ratio=0.5:metric=gate").strategy.lrmoe.metric,
            plan::Metric::gate);
  EXPECT_EQ(with_strategy(base, "lrmoe:ratio=1").strategy.lrmoe.ratio, 1.0);
  const auto message = [&](const std::string& spec) {
    try {
      with_strategy(base, spec);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("simi").find("strategy 'simi': strategy.name = 'simi' is not a strategy "
                                 "(nearest: 'symi'); there are: "),
            0U);
  EXPECT_EQ(message("symi:capasity_factor=1")
                .find("strategy 'symi:capasity_factor=1': unknown setting 'capasity_factor'; did "
                      "you mean 'capacity_factor'?"),
            0U);
  EXPECT_EQ(message("symi:1.5"),
            "strategy 'symi:1.5': '1.5' is no setting; write key=value, as in "
            "symi:capacity_factor=inf");
  EXPECT_NE(message("symi:capacity_factor=-1").find("it takes a number above 0, or inf"),
            std::string::npos);
  EXPECT_EQ(message("lrmoe:ratio=1.5"),
            "strategy 'lrmoe:ratio=1.5': lrmoe.ratio = 1.5 will not do; it takes a number above 0 "
            "and at most 1");
  EXPECT_NE(message("").find("is not a strategy"), std::string::npos);
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
