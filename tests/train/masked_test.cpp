// Training on lines with prompts: the loss is the mean over the trained tokens of the
// whole step, however they are spread over ranks and micro-batches, and the other
// tokens' pairs cost nothing backward in the last layer.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/train/batch.h"
#include "lrmoe/train/metrics.h"
#include "lrmoe/train/replica.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

// 40 lines of 6 to 17 tokens; the trained part is 1 to 5 tokens, so ranks differ.
std::string lines() {
  std::string text;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t size = 6 + hash({i, 1}) % 12;
    std::string ids;
    for (std::uint64_t t = 0; t < size; ++t) {
      ids += (t == 0 ? "" : ", ") + std::to_string((i * 7 + t * 11 + hash({i}) % 3) % 64);
    }
    text += "{\"tokens\": [" + ids + "], \"prompt\": " + std::to_string(size - 1 - i % 5) + "}\n";
  }
  return text;
}

Config masked_config(const TemporaryFolder& folder, int ranks, int accumulation) {
  Config config = tiny_config(folder, ranks);
  config.data.path = folder / "lines.jsonl";
  write_file(config.data.path, lines());
  config.model.vocabulary = 64;
  config.train.steps = 4;
  config.train.accumulation = accumulation;
  config.train.aux_loss = 0;  // it is a mean over micro-batches
  return config;
}

struct Outcome {
  TrainResult result;
  std::vector<StepMetrics> metrics;
};

Outcome run(const Config& config, const TemporaryFolder& folder, const std::string& name) {
  Outcome outcome{train(options_for(config, folder, name)), {}};
  outcome.metrics = read_metrics(folder / (name + "/metrics.jsonl"));
  return outcome;
}

TEST(MaskedTraining, is_the_same_on_any_ranks_and_micro_batches) {
  const TemporaryFolder folder;
  const Outcome one = run(masked_config(folder, 1, 1), folder, "one");
  for (const auto& [ranks, accumulation] : {std::pair(1, 4), std::pair(2, 1), std::pair(3, 2)}) {
    const std::string name = std::to_string(ranks) + "x" + std::to_string(accumulation);
    const Outcome many = run(masked_config(folder, ranks, accumulation), folder, name);
    ASSERT_EQ(many.result.losses.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(many.result.losses[i], one.result.losses[i], 1e-5) << name;
      EXPECT_EQ(many.metrics[i].trained_tokens, one.metrics[i].trained_tokens) << name;
      EXPECT_NEAR(many.metrics[i].grad_norm, one.metrics[i].grad_norm, 1e-4) << name;
    }
    EXPECT_NEAR(many.result.validations.back().loss, one.result.validations.back().loss, 1e-5);
  }
}

TEST(MaskedTraining, takes_the_mean_over_the_trained_tokens) {
  const TemporaryFolder folder;
  const Config config = masked_config(folder, 1, 1);
  const Outcome outcome = run(config, folder, "run");
  // The first step's loss once more, token by token, from the first weights' logits.
  const auto data = open_data(config.data, config.model.sequence, config.model.vocabulary);
  const auto strategy = plan::make_strategy(config.strategy);
  at::set_num_threads(1);
  double sum = 0;
  std::int64_t count = 0;
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    const at::NoGradGuard no_grad;
    Replica replica(config, *strategy, communicator);
    for (std::int64_t i = 0; i < 16; ++i) {
      const Sequence s = data->read(data->pick(config.train.seed, {0, i, 16}));
      const at::Tensor ids = at::tensor(s.tokens, at::kLong).unsqueeze(0);
      const at::Tensor log_p = at::log_softmax(
          replica.model.logits(ids.slice(1, 0, ids.size(1) - 1), {0, 0, /*evaluate=*/true}), -1);
      for (std::size_t t = 1; t < s.tokens.size(); ++t) {
        if (s.trained[t] != 0) {
          sum -= log_p[0][static_cast<std::int64_t>(t) - 1][s.tokens[t]].item<double>();
          ++count;
        }
      }
    }
  });
  EXPECT_EQ(outcome.metrics[0].trained_tokens, count);
  EXPECT_NEAR(outcome.result.losses[0], sum / static_cast<double>(count), 1e-5);
}

TEST(MaskedTraining, prompts_cost_nothing_backward_in_the_last_layer) {
  const TemporaryFolder folder;
  for (const std::string strategy : {"fixed", "lrmoe"}) {
    Config config = masked_config(folder, 2, 1);
    config.strategy.name = strategy;
    config.strategy.lrmoe.ratio = 0.5;
    const Outcome outcome = run(config, folder, strategy);
    const auto data = open_data(config.data, config.model.sequence, config.model.vocabulary);
    for (const StepMetrics& m : outcome.metrics) {
      std::int64_t inputs = 0;
      for (std::int64_t i = 0; i < 16; ++i) {
        inputs =
            std::max(inputs, data->size(data->pick(config.train.seed, {m.step - 1, i, 16})).inputs);
      }
      const std::int64_t pairs = 16 * inputs * config.model.top_k;
      const std::int64_t dead = pairs - m.trained_tokens * config.model.top_k;
      ASSERT_EQ(m.layers.size(), 2U);
      if (strategy == "fixed") {
        EXPECT_EQ(m.layers[1].zero_pairs, dead);
        EXPECT_LT(m.layers[0].zero_pairs, dead);  // padding alone: prompts are looked back at
        EXPECT_GT(m.layers[0].zero_pairs, 0);
      } else {
        // All that have a delta fit into the quota, which is filled up with others.
        const double kept = m.layers[1].retained_ratio * static_cast<double>(pairs);
        EXPECT_NEAR(static_cast<double>(m.layers[1].zero_pairs),
                    kept - static_cast<double>(m.trained_tokens * config.model.top_k),
                    0.05 * static_cast<double>(pairs));
      }
    }
  }
}

}  // namespace
}  // namespace lrmoe::train
