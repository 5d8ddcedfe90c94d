#include "lrmoe/train/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/metrics.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

/// Stands in for training: 10 steps with an evaluation after every second one,
/// whose loss falls by 0.25; fixed takes two seconds of MoE time a step, others one.
struct FakeTraining {
  std::vector<std::string> trained;
  std::vector<TrainOptions> options;

  TrainResult operator()(const TrainOptions& o) {
    trained.push_back(o.config.strategy.name);
    options.push_back(o);
    std::filesystem::create_directories(o.run_folder);
    MetricsWriter metrics(std::filesystem::path(o.run_folder) / "metrics.jsonl");
    TrainResult result;
    for (std::int64_t step = 1; step <= 10; ++step) {
      StepMetrics m;
      m.step = step;
      m.loss = 4.0 - 0.125 * static_cast<double>(step);
      m.moe_seconds = o.config.strategy.name == "fixed" ? 2 : 1;
      m.moe.moe_forward_seconds = 0.25 * m.moe_seconds;
      m.moe.moe_backward_seconds = 0.5 * m.moe_seconds;
      m.moe_update_seconds = 0.25 * m.moe_seconds;
      m.moe_exchange_seconds = 0.125;
      m.moe.dropped_pairs = 3;
      m.moe.memory_peak_bytes = 100 + step;
      m.moe.added_variance = 0.5;
      metrics.write(m);
      result.steps = step;
      result.losses.push_back(m.loss);
      result.moe_seconds += m.moe_seconds;
      result.total_seconds += 3;
      if (step % 2 == 0) {
        result.validations.push_back({step, m.loss, result.moe_seconds, result.total_seconds});
      }
      if (o.stop && o.stop(result)) {
        break;
      }
    }
    return result;
  }
};

CompareOptions options_for(const TemporaryFolder& folder, const std::string& strategies) {
  CompareOptions options;
  options.strategies = split_strategies(strategies);
  options.run_folder = (folder / "run").string();
  return options;
}

TEST(Compare, TrainsInOrderAndStopsAtTheTarget) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi, fixed,symi:capacity_factor=1.5");
  options.target_loss = 3.25;  // after step 6
  const std::vector<CompareRow> rows = compare(options, std::ref(training));
  EXPECT_EQ(training.trained, (std::vector<std::string>{"symi", "fixed", "symi"}));
  EXPECT_EQ(training.options[2].config.strategy.capacity_factor, 1.5);
  EXPECT_EQ(training.options[0].config.train.seed, training.options[1].config.train.seed);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].strategy, "fixed");
  EXPECT_TRUE(rows[1].reached);
  EXPECT_EQ(rows[1].steps, 6);
  EXPECT_EQ(rows[1].moe_seconds, 12.0);
  EXPECT_EQ(rows[1].moe_forward_seconds, 3.0);
  EXPECT_EQ(rows[1].moe_backward_seconds, 6.0);
  EXPECT_EQ(rows[1].moe_update_seconds, 3.0);
  EXPECT_EQ(rows[1].moe_exchange_seconds, 0.75);
  EXPECT_EQ(rows[1].total_seconds, 18.0);
  EXPECT_EQ(rows[1].against_symi, 2.0);
  EXPECT_EQ(rows[0].against_symi, 1.0);
  EXPECT_EQ(rows[1].final_loss, 3.25);
  EXPECT_EQ(rows[1].validation_loss, 3.25);
  EXPECT_EQ(rows[1].dropped_pairs, 18);
  EXPECT_EQ(rows[1].memory_subtotal, 106);
  EXPECT_EQ(rows[1].added_variance, 0.5);
  EXPECT_EQ(std::filesystem::path(rows[2].run_folder).filename(), "3-symi-capacity_factor=1.5");
  const auto json = nlohmann::json::parse(read_text(folder / "run/compare.json"));
  EXPECT_EQ(json["format"], "lrmoe-compare");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["target_loss"], 3.25);
  EXPECT_EQ(json["clock"], "measured");
  EXPECT_EQ(json["results"][1]["steps"], 6);
  EXPECT_EQ(json["results"][1]["against_symi"], 2.0);
  for (const char* name :
       {"strategy", "reached", "steps", "moe_seconds", "total_seconds", "against_symi",
        "added_variance", "final_loss", "validation_loss", "memory_subtotal", "dropped_pairs"}) {
    EXPECT_TRUE(json["results"][0].contains(name)) << name;
  }
}

TEST(Compare, ATargetThatIsNotReachedTakesAllSteps) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi,fixed");
  options.target_loss = 1;
  const std::vector<CompareRow> rows = compare(options, std::ref(training));
  EXPECT_FALSE(rows[0].reached);
  EXPECT_EQ(rows[0].steps, 10);
  EXPECT_EQ(rows[0].moe_seconds, 10.0);
  EXPECT_FALSE(rows[1].against_symi.has_value());
}

TEST(Compare, WithoutATargetAllStepsCount) {
  const TemporaryFolder folder;
  FakeTraining training;
  const std::vector<CompareRow> rows =
      compare(options_for(folder, "fixed,symi"), std::ref(training));
  EXPECT_FALSE(rows[0].reached);
  EXPECT_EQ(rows[0].against_symi, 2.0);
  EXPECT_TRUE(
      nlohmann::json::parse(read_text(folder / "run/compare.json"))["target_loss"].is_null());
}

TEST(Compare, NothingTrainsWhenOneStrategyIsWrong) {
  const TemporaryFolder folder;
  FakeTraining training;
  EXPECT_THROW(compare(options_for(folder, "fixed,symmi"), std::ref(training)), InputError);
  EXPECT_THROW(compare(options_for(folder, "fixed,symi:factor=1"), std::ref(training)), InputError);
  EXPECT_TRUE(training.trained.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_EQ(message_of<InputError>([] { split_strategies("fixed,,symi"); }),
            "--strategies fixed,,symi: a name is missing; write names with commas between, as in "
            "fixed,symi");
}

TEST(Compare, AnotherComparisonIsNotWrittenOver) {
  const TemporaryFolder folder;
  FakeTraining training;
  write_file(folder / "file", "x");
  CompareOptions options = options_for(folder, "fixed");
  options.run_folder = folder.path().string();
  EXPECT_EQ(message_of<InputError>([&] { compare(options, std::ref(training)); }),
            "run folder '" + folder.path().string() + "' is not empty; name another with --run");
  EXPECT_TRUE(training.trained.empty());
}

TEST(Compare, AFailureSaysWhichStrategy) {
  const TemporaryFolder folder;
  const TrainFunction fails = [](const TrainOptions&) -> TrainResult {
    throw RunError("the loss is not finite at step 3");
  };
  EXPECT_EQ(message_of<RunError>([&] { compare(options_for(folder, "symi"), fails); }),
            "strategy 'symi': the loss is not finite at step 3");
}

TEST(Compare, TheTableLinesUp) {
  CompareRow row;
  row.strategy = "fixed";
  row.steps = 7;
  row.final_loss = 1.5;
  const std::vector<std::string> lines = split(to_compare_table({row}), '\n');
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].size(), lines[1].size());
  EXPECT_EQ(lines[1].find("fixed     "), 0U);
  EXPECT_NE(lines[1].find("1.5000"), std::string::npos);
}

}  // namespace
}  // namespace lrmoe::train
