// The virtual cluster's clock in training, and what else a step's metrics tell of
// its MoE layers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/train/compare.h"
#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

Config clocked(const TemporaryFolder& folder, const std::string& strategy,
               const std::string& profile = "h200-nvlink", int ranks = 4) {
  Config config = tiny_config(folder, ranks);
  config.train.steps = 4;
  config.train.warmup = 1;
  config.train.evaluate_every = 2;
  config.train.accumulation = 2;
  config.clock.profile = profile;
  return with_strategy(config, strategy);
}

/// The same at another model's dimensions, where pairs outweigh latencies.
Config priced_large(const TemporaryFolder& folder, const std::string& strategy) {
  Config config = clocked(folder, strategy);
  config.clock.shape = "qwen3-30b-a3b";
  config.clock.scale = 4096;
  return config;
}

std::vector<StepMetrics> run(const Config& config, const TemporaryFolder& folder,
                             const std::string& name) {
  train(options_for(config, folder, name));
  return read_metrics(folder / name + "/metrics.jsonl");
}

/// What a priced step must be the same in, as text.
std::string priced(StepMetrics step) {
  step.measured.reset();
  return to_json_line(step);
}

TEST(VirtualClock, two_runs_take_the_same_seconds) {
  const TemporaryFolder folder;
  const Config config = clocked(folder, "lrmoe:ratio=0.5", "h200-ib");
  const auto first = run(config, folder, "first");
  const auto second = run(config, folder, "second");
  ASSERT_EQ(first.size(), 4U);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(priced(first[i]), priced(second[i]));
  }
}

TEST(VirtualClock, losses_are_those_of_the_measured_run) {
  const TemporaryFolder folder;
  Config config = clocked(folder, "lrmoe:ratio=0.5");
  const auto modelled = run(config, folder, "modelled");
  config.clock.profile = "measured";
  const auto measured = run(config, folder, "measured");
  for (std::size_t i = 0; i < modelled.size(); ++i) {
    EXPECT_EQ(modelled[i].loss, measured[i].loss);
    EXPECT_EQ(modelled[i].moe.bytes_forward, measured[i].moe.bytes_forward);
    EXPECT_EQ(modelled[i].clock, "virtual:h200-nvlink");
    EXPECT_EQ(measured[i].clock, "measured");
    EXPECT_FALSE(measured[i].measured.has_value());
    EXPECT_FALSE(measured[i].parts.has_value());
    ASSERT_TRUE(modelled[i].measured.has_value());
    // Threads on a CPU are far slower than the cluster, and the wall clock goes on.
    EXPECT_GT(modelled[i].measured->moe_seconds, modelled[i].moe_seconds);
  }
}

TEST(VirtualClock, parts_sum_up) {
  const TemporaryFolder folder;
  for (const std::string strategy : {"fixed", "symi", "lrmoe:ratio=0.25"}) {
    const auto steps = run(priced_large(folder, strategy), folder, strategy.substr(0, 5));
    for (const StepMetrics& step : steps) {
      const MoeMetrics& moe = step.moe;
      EXPECT_NEAR(step.moe_seconds,
                  moe.moe_forward_seconds + moe.moe_backward_seconds + moe.moe_update_seconds,
                  1e-12);
      EXPECT_LT(moe.moe_exchange_seconds, moe.moe_forward_seconds + moe.moe_backward_seconds);
      EXPECT_GT(moe.moe_exchange_seconds, 0);
      double forward = 0, backward = 0, update = 0, exchange = 0;
      for (const MoeMetrics& layer : step.layers) {
        forward += layer.moe_forward_seconds;
        backward += layer.moe_backward_seconds;
        update += layer.moe_update_seconds;
        exchange += layer.moe_exchange_seconds;
      }
      EXPECT_NEAR(forward, moe.moe_forward_seconds, 1e-12);
      EXPECT_NEAR(backward, moe.moe_backward_seconds, 1e-12);
      EXPECT_NEAR(update, moe.moe_update_seconds, 1e-12);
      EXPECT_NEAR(exchange, moe.moe_exchange_seconds, 1e-12);
      const PricedParts& parts = step.parts.value();
      EXPECT_NEAR(step.seconds, step.moe_seconds + parts.rest, 1e-12);
      EXPECT_GT(parts.rest, 0);
      EXPECT_LE(parts.weight_exchange + parts.scores, moe.moe_update_seconds);
      const bool samples = strategy.starts_with("lrmoe");
      EXPECT_EQ(parts.plan > 0, samples) << strategy;
      EXPECT_EQ(parts.statistics > 0, samples);
      EXPECT_EQ(parts.select > 0, samples);
      EXPECT_EQ(parts.scores > 0, samples);
      EXPECT_EQ(parts.weight_exchange > 0, strategy != "fixed");
    }
  }
}

TEST(VirtualClock, a_smaller_ratio_takes_less_of_the_backward_pass) {
  const TemporaryFolder folder;
  const auto backward = [&](const std::string& ratio) {
    double seconds = 0;
    for (const StepMetrics& step :
         run(priced_large(folder, "lrmoe:ratio=" + ratio), folder, ratio)) {
      seconds += step.moe.moe_backward_seconds;
    }
    return seconds;
  };
  const double all = backward("1"), half = backward("0.5"), quarter = backward("0.25");
  EXPECT_LT(half, 0.75 * all);
  EXPECT_LT(quarter, 0.75 * half);
}

TEST(VirtualClock, this_machine_prices_cpu_seconds) {
  const TemporaryFolder folder;
  for (const StepMetrics& step : run(clocked(folder, "symi", "this-machine", 2), folder, "run")) {
    EXPECT_EQ(step.clock, "virtual:this-machine");
    EXPECT_GT(step.moe.moe_forward_seconds, 0);
    EXPECT_GT(step.moe.moe_backward_seconds, 0);
    EXPECT_GT(step.parts->rest, 0);
    EXPECT_NEAR(step.seconds, step.moe_seconds + step.parts->rest, 1e-9);
  }
}

TEST(VirtualClock, compare_takes_its_seconds) {
  const TemporaryFolder folder;
  CompareOptions options;
  options.config = priced_large(folder, "fixed");
  options.strategies = {"symi", "lrmoe:ratio=0.25"};
  options.run_folder = folder / "compare";
  options.quiet = true;
  const Comparison comparison =
      compare(options, [](const TrainOptions& one) { return train(one); });
  EXPECT_EQ(comparison.clock, "virtual:h200-nvlink");
  const auto steps = read_metrics(comparison.rows[1].runs[0].run_folder + "/metrics.jsonl");
  double seconds = 0, measured = 0;
  for (const StepMetrics& step : steps) {
    seconds += step.moe_seconds;
    measured += step.measured->moe_seconds;
  }
  const CompareFigures& figures = comparison.rows[1].mean;
  EXPECT_NEAR(figures.moe_seconds_per_step, seconds / 4, 1e-12);
  if (!comparison.rows[1].reached) {
    EXPECT_NEAR(figures.measured_moe_seconds, measured, 1e-9);
  }
  EXPECT_LT(figures.moe_seconds_per_step, comparison.rows[0].mean.moe_seconds_per_step);
  const auto json = nlohmann::json::parse(read_text(folder / "compare/compare.json"));
  EXPECT_EQ(json["clock"], "virtual:h200-nvlink");
  EXPECT_EQ(json["target_loss"], comparison.rows[0].mean.validation_loss);
}

TEST(StepMetrics, memory_variance_and_notes_of_the_layers) {
  const TemporaryFolder folder;
  Config config = clocked(folder, "lrmoe:ratio=0.25", "measured");
  const auto sampled = run(config, folder, "sampled");
  for (const StepMetrics& step : sampled) {
    const plan::MemoryTerms& memory = step.memory.value();
    // Two or three instances of 3dn floats a rank, in each of two layers.
    const std::int64_t instance = 3 * 32 * 24 * 4;
    EXPECT_EQ(memory.weights % instance, 0);
    EXPECT_GE(memory.weights, 2 * 2 * instance);
    EXPECT_LE(memory.weights, 2 * 3 * instance);
    EXPECT_EQ(memory.gradients, memory.weights);
    EXPECT_GT(memory.activations, 0);
    EXPECT_GT(memory.buffers + memory.workspace, 0);  // of the moment that needs most
    EXPECT_GT(step.moe.added_variance, 0);
    EXPECT_GT(step.moe.predicted_variance, 0);
    EXPECT_NEAR(step.moe.added_variance,
                (step.layers[0].added_variance + step.layers[1].added_variance) / 2, 1e-12);
    EXPECT_NEAR(step.layers[0].retained_ratio, 0.25, 0.02);
    EXPECT_TRUE(step.notes.empty());
  }
  config.strategy.lrmoe.ratio = 1;
  for (const StepMetrics& step : run(config, folder, "whole")) {
    EXPECT_EQ(step.moe.added_variance, 0);
    EXPECT_EQ(step.moe.retained_ratio, 1);
  }
  config.strategy.lrmoe.ratio = 0.25;
  config.strategy.lrmoe.variance_limit = 1e-6;
  const std::string guarded_run = "guarded";
  TrainOptions options = options_for(config, folder, guarded_run);
  options.quiet = false;
  testing::internal::CaptureStderr();
  train(options);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const StepMetrics& step : read_metrics(folder / guarded_run + "/metrics.jsonl")) {
    EXPECT_EQ(step.moe.retained_ratio, 1);
    ASSERT_GE(step.notes.size(), 2U);
    EXPECT_EQ(step.notes[0].layer, 0);
    EXPECT_EQ(step.notes.back().layer, 1);
    EXPECT_TRUE(step.notes[0].text.starts_with("all pairs are kept")) << step.notes[0].text;
  }
  for (const std::string layer : {"layer 0", "layer 1"}) {
    const std::size_t said = log.find(layer + ": all pairs are kept");
    EXPECT_NE(said, std::string::npos) << log;
    EXPECT_EQ(log.find(layer + ": all pairs are kept", said + 1), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace lrmoe::train
