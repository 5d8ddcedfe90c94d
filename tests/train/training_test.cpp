// Training as a whole: the numbers do not depend on ranks, placement or
// accumulation, two runs give the same bits, and the loss falls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lrmoe/base/error.h"
#include "lrmoe/train/metrics.h"
#include "lrmoe/train/schedule.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

// Greatest relative difference of two runs' losses, step by step.
double difference(const TrainResult& a, const TrainResult& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i) {
    most = std::max(most, std::abs(a.losses[i] - b.losses[i]) / a.losses[i]);
  }
  ::testing::Test::RecordProperty("relative_difference", std::to_string(most * 1e9) + "e-9");
  return most;
}

// Rounding differs with the batches' cut and grows over the steps; 20 steps of
// this model measured 2e-7.
constexpr double kRounding = 5e-6;

class Ranks : public testing::TestWithParam<std::pair<int, std::string>> {};

TEST_P(Ranks, train_as_one_rank_does) {
  const auto& [ranks, strategy] = GetParam();
  const TemporaryFolder folder;
  const TrainResult one = train(options_for(tiny_config(folder, 1), folder, "one"));
  Config config = tiny_config(folder, ranks);
  config.strategy.name = strategy;
  const TrainResult many = train(options_for(config, folder, "many"));
  EXPECT_EQ(one.losses.size(), 20U);
  EXPECT_LT(difference(one, many), kRounding);
  ASSERT_EQ(many.validations.size(), 2U);
  EXPECT_NEAR(one.validations[1].loss, many.validations[1].loss,
              kRounding * one.validations[1].loss);
}

INSTANTIATE_TEST_SUITE_P(Training, Ranks,
                         testing::Values(std::pair(2, "fixed"), std::pair(4, "fixed"),
                                         std::pair(3, "fixed"), std::pair(4, "symi")));

TEST(Training, two_runs_give_the_same_bits) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.strategy.name = "symi";
  const TrainResult a = train(options_for(config, folder, "a"));
  const TrainResult b = train(options_for(config, folder, "b"));
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.validations.back().loss, b.validations.back().loss);
}

// Moves every expert to the next rank after every step.
class Rotating final : public plan::Strategy {
 public:
  Rotating() : fixed_(plan::make_strategy({})) {}
  std::string_view name() const override { return "rotating"; }
  plan::Placement initial(const plan::Cluster& cluster) const override {
    return fixed_->initial(cluster);
  }
  plan::Placement place(const plan::Cluster& cluster, const plan::Counts&,
                        const plan::Placement& present, const plan::ScoreCurves*) const override {
    plan::Placement next = present;
    for (int r = 0; r < cluster.ranks; ++r) {
      const auto row = present.row(r);
      std::copy(row.begin(), row.end(), next.row((r + 1) % cluster.ranks).begin());
    }
    return next;
  }
  plan::Plan route(const plan::RouteInput& input) const override {
    plan::Plan plan = symi_->route(input);
    plan.strategy = "rotating";
    return plan;
  }

 private:
  std::unique_ptr<const plan::Strategy> fixed_;
  std::unique_ptr<const plan::Strategy> symi_ = plan::make_strategy({"symi"});
};

TEST(Training, a_placement_that_changes_every_step_changes_nothing) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder, 2);
  const TrainResult fixed = train(options_for(config, folder, "fixed"));
  const TrainResult rotating = train(options_for(config, folder, "rotating"), Rotating());
  EXPECT_LT(difference(fixed, rotating), kRounding);
  // That it did move: weights were sent, which `fixed` never does.
  EXPECT_EQ(read_metrics(folder / "fixed/metrics.jsonl").back().bytes_update, 0);
  EXPECT_GT(read_metrics(folder / "rotating/metrics.jsonl").back().bytes_update, 0);
}

TEST(Training, accumulation_does_not_change_the_loss) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.aux_loss = 0;  // not linear in the batch
  const TrainResult whole = train(options_for(config, folder, "whole"));
  config.train.accumulation = 2;
  const TrainResult halves = train(options_for(config, folder, "halves"));
  EXPECT_LT(difference(whole, halves), kRounding);
}

TEST(Training, more_ranks_than_sequences) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 4);
  config.train.tokens_per_step = 48;  // 3 sequences
  config.train.steps = 3;
  const TrainResult many = train(options_for(config, folder, "many"));
  config.parallel.ranks = 1;
  config.parallel.slots = 8;
  const TrainResult one = train(options_for(config, folder, "one"));
  EXPECT_LT(difference(one, many), kRounding);
}

TEST(Training, clipping_scales_to_the_limit) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 3;
  config.train.clip = 0.05;
  train(options_for(config, folder, "clipped"));
  int clipped = 0;
  for (const StepMetrics& step : read_metrics(folder / "clipped/metrics.jsonl")) {
    EXPECT_EQ(step.clip_coefficient, std::min(1.0, 0.05 / step.grad_norm));
    clipped += step.clip_coefficient < 1 ? 1 : 0;
  }
  EXPECT_GT(clipped, 0);
  config.train.clip = 0;
  train(options_for(config, folder, "free"));
  EXPECT_EQ(read_metrics(folder / "free/metrics.jsonl").front().clip_coefficient, 1.0);
  EXPECT_EQ(read_metrics(folder / "free/metrics.jsonl").front().grad_norm,
            read_metrics(folder / "clipped/metrics.jsonl").front().grad_norm);
}

TEST(Training, metrics_hold_every_step_and_layer) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.model.dense_layers = {0};
  config.train.accumulation = 2;
  config.train.steps = 10;
  train(options_for(config, folder, "run"));
  const std::vector<StepMetrics> steps = read_metrics(folder / "run/metrics.jsonl");
  ASSERT_EQ(steps.size(), 10U);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepMetrics& step = steps[i];
    EXPECT_EQ(step.step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(step.lr, learning_rate(config.train, static_cast<std::int64_t>(i)));
    EXPECT_EQ(step.tokens, 256);
    EXPECT_EQ(step.layer_index, std::vector<int>{1});
    ASSERT_EQ(step.layers.size(), 1U);
    EXPECT_GE(step.moe.imbalance_forward, 1.0);
    EXPECT_LE(step.moe.imbalance_forward, 2.0);  // two ranks
    EXPECT_EQ(step.moe.imbalance_forward, step.layers[0].imbalance_forward);
    EXPECT_EQ(step.moe.retained_ratio, 1.0);
    EXPECT_EQ(step.moe.dropped_pairs, 0);
    EXPECT_GT(step.moe.bytes_forward, 0);
    EXPECT_GT(step.moe.bytes_backward, 0);
    EXPECT_GT(step.moe.memory_peak_bytes, 0);
    EXPECT_GT(step.moe_seconds, 0);
    EXPECT_LE(step.moe.moe_forward_seconds + step.moe.moe_backward_seconds, step.moe_seconds);
    EXPECT_EQ(step.validation_loss.has_value(), step.step == 10);
  }
}

TEST(Training, a_capacity_drops_in_training_but_not_in_evaluation) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 1;
  config.train.learning_rate = 1e-12;  // so that evaluation sees the first weights
  const TrainResult whole = train(options_for(config, folder, "whole"));
  config.strategy.name = "symi";
  config.strategy.capacity_factor = 0.5;
  const TrainResult dropping = train(options_for(config, folder, "dropping"));
  EXPECT_EQ(whole.dropped_pairs, 0);
  EXPECT_GT(dropping.dropped_pairs, 0);
  EXPECT_NEAR(dropping.validations.at(0).loss, whole.validations.at(0).loss,
              1e-5 * whole.validations.at(0).loss);
}

TEST(Training, stops_when_the_loss_is_not_finite) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.learning_rate = 1e30;
  config.train.warmup = 0;
  config.train.clip = 0;
  try {
    train(options_for(config, folder, "run"));
    FAIL() << "the run went on";
  } catch (const RunError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("not finite at step"), std::string::npos) << message;
    EXPECT_NE(message.find("train.learning_rate"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Training, the_loss_falls) {
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16}) {
    const TemporaryFolder folder;
    Config config = tiny_config(folder, 2);
    config.train.dtype = dtype;
    config.train.steps = 80;
    config.train.learning_rate = 1e-2;
    config.train.tokens_per_step = 512;
    config.model.router = model::RouterKind::sigmoid;
    config.strategy.name = "symi";
    const TrainResult result = train(options_for(config, folder, "run"));
    EXPECT_NEAR(result.losses.front(), std::log(256.0), 0.1);
    EXPECT_LT(result.losses.back(), 1.5);
    EXPECT_LT(result.validations.back().loss, 1.5);
  }
}

TEST(Schedule, warms_up_and_falls_to_the_final_rate) {
  TrainConfig config;
  config.steps = 100;
  config.warmup = 10;
  config.learning_rate = 1.0;
  config.final_rate = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10), 1.0);
  EXPECT_LT(learning_rate(config, 60), learning_rate(config, 50));
  EXPECT_NEAR(learning_rate(config, 99), 0.1, 1e-12);
}

}  // namespace
}  // namespace lrmoe::train
