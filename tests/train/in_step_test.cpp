// Placement in-step: planned from the demand of the step that uses it, the weights
// fetched before the GEMMs. With every pair kept it is plain training.
#include <gtest/gtest.h>

#include <cmath>

#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

Config in_step(const TemporaryFolder& folder, int ranks, double ratio) {
  Config config = tiny_config(folder, ranks);
  config.strategy.name = "lrmoe";
  config.strategy.lrmoe.ratio = ratio;
  config.strategy.lrmoe.placing = plan::Placing::in_step;
  return config;
}

void expect_same(const TrainResult& a, const TrainResult& b) {
  constexpr double kRounding = 5e-6;  // as in training_test
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], kRounding * a.losses[i]) << "step " << i + 1;
  }
  ASSERT_EQ(a.validations.size(), b.validations.size());
  for (std::size_t i = 0; i < a.validations.size(); ++i) {
    EXPECT_NEAR(a.validations[i].loss, b.validations[i].loss, kRounding * a.validations[i].loss);
  }
}

TEST(InStep, keep_all_is_plain_training) {
  const TemporaryFolder folder;
  const TrainResult plain = train(options_for(tiny_config(folder, 1), folder, "plain"));
  for (const int ranks : {1, 2, 4}) {
    const std::string name = std::to_string(ranks);
    expect_same(plain, train(options_for(in_step(folder, ranks, 1.0), folder, name)));
  }
}

TEST(InStep, one_placement_serves_all_micro_batches_of_a_step) {
  const TemporaryFolder folder;
  Config plain = tiny_config(folder, 1);
  plain.train.accumulation = 2;
  Config config = in_step(folder, 2, 1.0);
  config.train.accumulation = 2;
  expect_same(train(options_for(plain, folder, "plain")),
              train(options_for(config, folder, "in-step")));
}

TEST(InStep, loads_follow_the_steps_own_demand) {
  const TemporaryFolder folder;
  Config config = in_step(folder, 4, 0.5);
  config.strategy.lrmoe.activations = plan::Activations::recompute;
  train(options_for(config, folder, "own"));
  config.strategy.lrmoe.placing = plan::Placing::next_step;
  train(options_for(config, folder, "last"));
  const auto own = read_metrics(folder / "own/metrics.jsonl");
  const auto last = read_metrics(folder / "last/metrics.jsonl");
  double own_sum = 0, last_sum = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    own_sum += own[i].moe.imbalance_forward;
    last_sum += last[i].moe.imbalance_forward;
    // Once per step, as with the placement of the step before; an evaluation's are its own.
    EXPECT_EQ(own[i].bytes_update > 0, last[i].bytes_update > 0);
  }
  EXPECT_LE(own_sum, last_sum);
}

TEST(InStep, two_runs_give_the_same_bits) {
  const TemporaryFolder folder;
  const Config config = in_step(folder, 2, 0.5);
  const TrainResult a = train(options_for(config, folder, "a"));
  const TrainResult b = train(options_for(config, folder, "b"));
  EXPECT_EQ(a.losses, b.losses);
}

TEST(InStep, goes_on_from_a_checkpoint_with_the_same_bits) {
  const TemporaryFolder folder;
  const Config config = in_step(folder, 2, 0.5);
  const TrainResult whole = train(options_for(config, folder, "whole"));
  TrainOptions again = options_for(config, folder, "again");
  again.stop = [](const TrainResult& result) { return result.steps == 14; };
  train(again);
  again.stop = nullptr;
  again.resume = true;
  const TrainResult rest = train(again);
  ASSERT_EQ(rest.losses.size(), 6U);
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 14, whole.losses.end()));
}

}  // namespace
}  // namespace lrmoe::train
