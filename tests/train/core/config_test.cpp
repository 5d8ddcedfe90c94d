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
dtype = "uint32"
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
aux_loss_kind = "transformers"
accumulation = 2
freeze = ["norms", "shared"]
dtype = "bfloat16"
expert_dtype = "float32"
dense_dtype = "bfloat16"
checkpoint_every = 5
keep = 4
evaluate_every = 6
evaluate_tokens = 64
[parallel]
engine = "threads"
ranks = 2
slots = 5
[strategy]
name = "symi-sampled"
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
placement = "in-step"
audit_every = 25
[clock]
profile = "h200-ib"
shape = "glm-4.5-air"
scale = 32
ranks_per_node = 4
[memory]
budget = "2GiB"
[trace]
write = "run.trace"
scores = true
steps = 12
)");
  EXPECT_EQ(c.data.path, "x.txt");
  EXPECT_EQ(c.data.validation_fraction, 0.25);
  EXPECT_EQ(c.data.dtype, IdType::uint32);
  EXPECT_EQ(c.train.freeze, (std::vector<std::string>{"norms", "shared"}));
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
  EXPECT_EQ(c.model.aux_loss, model::AuxLoss::transformers);
  EXPECT_EQ(c.train.accumulation, 2);
  EXPECT_EQ(c.train.dtype, Dtype::bfloat16);
  EXPECT_EQ(c.train.checkpoint_every, 5);
  EXPECT_EQ(c.train.keep, 4);
  EXPECT_EQ(c.train.evaluate_every, 6);
  EXPECT_EQ(c.train.evaluate_tokens, 64);
  EXPECT_EQ(c.parallel.engine, "threads");
  EXPECT_EQ(c.parallel.ranks, 2);
  EXPECT_EQ(c.parallel.slots, 5);
  EXPECT_EQ(c.strategy.name, "symi-sampled");
  EXPECT_EQ(c.strategy.capacity_factor, 1.5);

  EXPECT_EQ(c.strategy.lrmoe,
            (plan::LrmoeOptions{0.5, 0.75, plan::SelectMode::top, plan::Metric::gate_grad, 0.6,
                                plan::ShortlistBy::output, plan::RouterGradient::exact,
                                plan::Activations::recompute, 0.05, 0.3, 0.1, 0.0,
                                plan::Placing::in_step}));
  EXPECT_EQ(c.lrmoe.audit_every, 25);
  EXPECT_EQ(c.clock.profile, "h200-ib");
  EXPECT_EQ(c.clock.shape, "glm-4.5-air");
  EXPECT_EQ(c.clock.scale, 32.0);
  EXPECT_EQ(c.clock.ranks_per_node, 4);
  EXPECT_EQ(c.memory.budget, "2GiB");
  EXPECT_EQ(c.trace.write, "run.trace");
  EXPECT_TRUE(c.trace.scores);
  EXPECT_EQ(c.trace.steps, 12);

  const Config timed = parse_config(
      "[strategy]\nname = \"lrmoe\"\n[lrmoe]\ntime = 0.125\n[clock]\nprofile = \"h200-ib\"\n"
      "[trace]\nwrite = \"t\"\nscores = true\n",
      "a.toml", {});
  EXPECT_EQ(timed.strategy.lrmoe.time, 0.125);

  // Nothing is left at its default above, so the round trip covers every key.
  const Config defaults;
  for (const Field& field : config_fields()) {
    // Keys that take one value only cannot differ; freeze stands for train_only, too, a
    // path brings dimensions of its own, and a time is no target beside a variance.
    if (field.name() != "lrmoe.time" && field.key != "preset" && field.key != "engine" &&
        field.key != "train_only" && field.name() != "model.path") {
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
            "a.toml:2: clock.profile = \"h100\" will not do; it takes measured (wall time), "
            "one of a100-ib, h200-ib, h200-nvlink, this-machine, or a TOML file with a profile "
            "(NAME.toml)");
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

// Of a folder that is named twice only the later one has to be there.
TEST(Config, AModelThatIsNamedAgainIsNotRead) {
  const std::string toml = "[model]\npath = \"/nowhere/at/all\"\n";
  EXPECT_THROW(parse_config(toml, "a.toml", {}), InputError);
  try {
    parse_config(toml, "a.toml", {"model.path=/nowhere/else"});
    FAIL() << "there is no such folder";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/else"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lrmoe::train
