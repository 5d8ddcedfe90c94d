// A memory budget in training: what the plan gives up is what the layers do, and
// nothing of it changes what is learned but a smaller ratio.
#include <gtest/gtest.h>

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

Config keep_all(const TemporaryFolder& folder) {
  Config config = tiny_config(folder, 2);
  config.strategy.name = "lrmoe";
  config.strategy.lrmoe.ratio = 1.0;
  config.train.steps = 4;
  config.train.evaluate_every = 0;
  config.train.tokens_per_step = 1024;
  return config;
}

std::string notes_of(const std::vector<StepMetrics>& steps) {
  std::string text;
  for (const StepMetrics& step : steps) {
    for (const LayerNote& note : step.notes) {
      text += note.text + "\n";
    }
  }
  return text;
}

TEST(Budget, StagesAreExecutedAndKeepAllStaysPlainTraining) {
  const TemporaryFolder folder;
  const TrainResult free = train(options_for(keep_all(folder), folder, "free"));
  const auto steps = read_metrics(folder / "free/metrics.jsonl");
  ASSERT_TRUE(steps.back().memory);
  const double whole = static_cast<double>(steps.back().memory->total());
  bool again = false, chunks = false, smaller = false, fewer = false;
  for (int percent = 105; percent > 0; percent -= 6) {
    Config config = keep_all(folder);
    config.memory.budget = std::to_string(static_cast<std::int64_t>(whole * percent / 100));
    const std::string name = std::to_string(percent);
    TrainResult result;
    try {
      result = train(options_for(config, folder, name));
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("the smallest budget"), std::string::npos)
          << error.what();
      EXPECT_LT(percent, 80);
      break;
    }
    const auto metrics = read_metrics(folder / (name + "/metrics.jsonl"));
    const std::string notes = notes_of(metrics);
    again = again || notes.find("computed again") != std::string::npos;
    chunks = chunks || notes.find(" chunks") != std::string::npos;
    smaller = smaller || notes.find("a ratio of") != std::string::npos;
    fewer = fewer || metrics.back().memory->weights < steps.back().memory->weights;
    if (notes.find("a ratio of") == std::string::npos) {
      for (std::size_t i = 0; i < result.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], free.losses[i], 5e-6 * free.losses[i]) << percent << "%";
      }
    }
    for (const StepMetrics& step : metrics) {
      // Each of the two layers is planned by itself, as if both were like it: where they
      // differ, by half of the passing part of the one that needs more at most.
      const std::int64_t passing = step.memory->buffers + step.memory->workspace;
      EXPECT_LE(step.moe.memory_peak_bytes,
                static_cast<std::int64_t>(whole * percent / 100) + passing / 2);
      EXPECT_TRUE(step.moe.retained_ratio == 1.0 || notes.find("a ratio of") != std::string::npos);
    }
  }
  EXPECT_TRUE(again);
  EXPECT_TRUE(chunks);
  EXPECT_TRUE(smaller);
  EXPECT_TRUE(fewer);
}

}  // namespace
}  // namespace lrmoe::train
