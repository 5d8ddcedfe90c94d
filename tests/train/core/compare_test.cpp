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
/// whose loss falls by 0.25, from where the strategy begins. fixed takes two
/// seconds of MoE time a step, others one; lrmoe a half, and learns less.
struct FakeTraining {
  std::vector<std::string> trained;
  std::vector<TrainOptions> options;

  TrainResult operator()(const TrainOptions& o) {
    const std::string& name = o.config.strategy.name;
    trained.push_back(name);
    options.push_back(o);
    std::filesystem::create_directories(o.run_folder);
    MetricsWriter metrics(std::filesystem::path(o.run_folder) / "metrics.jsonl");
    TrainResult result;
    for (std::int64_t step = 1; step <= 10; ++step) {
      StepMetrics m;
      m.step = step;
      m.loss = (name == "lrmoe"   ? 4.0625
                : name == "fixed" ? 3.75
                                  : 4.0) -
               0.125 * static_cast<double>(step) +
               0.5 * static_cast<double>(o.config.train.seed - 1);
      m.moe_seconds = name == "fixed" ? 2 : name == "lrmoe" ? 0.5 : 1;
      m.moe.moe_forward_seconds = 0.25 * m.moe_seconds;
      m.moe.moe_backward_seconds = 0.5 * m.moe_seconds;
      m.moe.moe_update_seconds = 0.25 * m.moe_seconds;
      m.moe.moe_exchange_seconds = 0.125;
      m.moe.dropped_pairs = 3;
      m.moe.memory_peak_bytes = 100 + step;
      m.moe.added_variance = 0.5;
      m.seconds = 3;
      result.steps = step;
      if (step % 2 == 0) {
        m.validation_loss = m.loss;
        result.validations.push_back({step, m.loss, 0, 0});
      }
      metrics.write(m);
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

nlohmann::json json_of(const TemporaryFolder& folder) {
  return nlohmann::json::parse(read_text(folder / "run/compare.json"));
}

TEST(Compare, TrainsInOrderAndStopsAtTheTarget) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi, fixed,symi:capacity_factor=1.5");
  options.target_loss = 3.25;  // symi: after step 6, fixed: after step 4
  const Comparison comparison = compare(options, std::ref(training));
  const std::vector<CompareRow>& rows = comparison.rows;
  EXPECT_EQ(training.trained, (std::vector<std::string>{"symi", "fixed", "symi"}));
  EXPECT_EQ(training.options[2].config.strategy.capacity_factor, 1.5);
  EXPECT_EQ(training.options[0].config.train.seed, training.options[1].config.train.seed);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].strategy, "fixed");
  EXPECT_TRUE(rows[1].reached);
  const CompareFigures& fixed = rows[1].mean;
  EXPECT_EQ(fixed.steps, 4);
  EXPECT_EQ(fixed.moe_seconds, 8.0);
  EXPECT_EQ(fixed.moe_forward_seconds, 2.0);
  EXPECT_EQ(fixed.moe_backward_seconds, 4.0);
  EXPECT_EQ(fixed.moe_update_seconds, 2.0);
  EXPECT_EQ(fixed.moe_exchange_seconds, 0.5);
  EXPECT_EQ(fixed.total_seconds, 12.0);
  EXPECT_EQ(fixed.moe_seconds_per_step, 2.0);
  EXPECT_EQ(rows[0].mean.steps, 6);
  EXPECT_EQ(fixed.against_symi, 8.0 / 6.0);
  EXPECT_EQ(rows[0].mean.against_symi, 1.0);
  EXPECT_EQ(fixed.final_loss, 3.25);
  EXPECT_EQ(fixed.validation_loss, 3.25);
  EXPECT_EQ(fixed.dropped_pairs, 12);
  EXPECT_EQ(fixed.memory_subtotal, 104);
  EXPECT_EQ(fixed.added_variance, 0.5);
  EXPECT_EQ(std::filesystem::path(rows[2].runs[0].run_folder).filename(),
            "3-symi-capacity_factor=1.5");
  const auto json = json_of(folder);
  EXPECT_EQ(json["format"], "lrmoe-compare");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["target_loss"], 3.25);
  EXPECT_EQ(json["target_given"], true);
  EXPECT_EQ(json["interpolated"], false);
  EXPECT_EQ(json["baseline"], "symi");
  EXPECT_EQ(json["clock"], "measured");
  EXPECT_EQ(json["results"][1]["steps"], 4);
  EXPECT_TRUE(json["results"][1]["steps"].is_number_integer());
  EXPECT_EQ(json["results"][0]["against_symi"], 1.0);
  EXPECT_FALSE(json["results"][0].contains("seeds"));
  for (const char* name :
       {"strategy", "reached", "steps", "moe_seconds", "total_seconds", "against_symi",
        "added_variance", "final_loss", "validation_loss", "memory_subtotal", "dropped_pairs"}) {
    EXPECT_TRUE(json["results"][0].contains(name)) << name;
  }
}

TEST(Compare, ATargetThatIsNotReachedIsSaidAndComparesNothing) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi,fixed");
  options.target_loss = 2.5;  // fixed: after step 10, symi: never
  const Comparison comparison = compare(options, std::ref(training));
  EXPECT_FALSE(comparison.rows[0].reached);
  EXPECT_EQ(comparison.rows[0].mean.steps, 10);
  EXPECT_EQ(comparison.rows[0].mean.moe_seconds, 10.0);
  EXPECT_TRUE(comparison.rows[1].reached);
  EXPECT_FALSE(comparison.rows[0].mean.against_symi.has_value());
  EXPECT_FALSE(comparison.rows[1].mean.against_symi.has_value());
  EXPECT_TRUE(json_of(folder)["results"][1]["against_symi"].is_null());
  const std::string text = to_compare_text(comparison);
  EXPECT_NE(text.find("symi did not reach the target: nothing is compared with it."),
            std::string::npos);
  EXPECT_EQ(text.find("fixed did not reach"), std::string::npos);
}

TEST(Compare, WithoutATargetItIsTheLossWithWhichSymiEnds) {
  const TemporaryFolder folder;
  FakeTraining training;
  const Comparison comparison =
      compare(options_for(folder, "fixed,symi,lrmoe"), std::ref(training));
  EXPECT_EQ(training.trained.size(), 3U);
  EXPECT_EQ(comparison.target_loss, 2.75);
  EXPECT_FALSE(comparison.target_given);
  const std::vector<CompareRow>& rows = comparison.rows;
  EXPECT_EQ(rows[1].mean.steps, 10);
  EXPECT_EQ(rows[0].mean.steps, 8);  // an evaluation hits it
  EXPECT_EQ(rows[0].mean.moe_seconds, 16);
  EXPECT_EQ(rows[0].mean.against_symi, 1.6);
  // All of its steps were trained, and its losses are those of the end.
  EXPECT_EQ(rows[0].mean.validation_loss, 2.5);
  EXPECT_FALSE(rows[2].reached);  // 2.8125 at the end
  EXPECT_FALSE(rows[2].mean.against_symi.has_value());
  EXPECT_EQ(rows[2].mean.moe_seconds_per_step, 0.5);
  const auto json = json_of(folder);
  EXPECT_EQ(json["target_loss"], 2.75);
  EXPECT_EQ(json["interpolated"], true);
  const std::string text = to_compare_text(comparison);
  EXPECT_NE(text.find("Target: validation loss 2.7500, with which symi ended (none was given)"),
            std::string::npos);
  EXPECT_NE(text.find("interpolated"), std::string::npos);
  EXPECT_NE(text.find("lrmoe did not reach the target: it is compared with nothing."),
            std::string::npos);
}

TEST(Compare, BetweenEvaluationsTheLossFallsOnALine) {
  const TemporaryFolder folder;
  FakeTraining training;
  // symi ends with 2.75; the other's losses then lie 0.0625 above, and it trains on.
  CompareOptions options = options_for(folder, "lrmoe,symi");
  const TrainFunction train = [&](const TrainOptions& o) {
    TrainResult result = training(o);
    if (o.config.strategy.name == "lrmoe") {
      MetricsWriter metrics(std::filesystem::path(o.run_folder) / "metrics.jsonl");
      for (const std::int64_t step : {11, 12}) {
        StepMetrics m;
        m.step = step;
        m.moe_seconds = 0.5;
        m.seconds = 3;
        if (step == 12) {
          m.validation_loss = 2.5625;
        }
        metrics.write(m);
      }
    }
    return result;
  };
  const CompareRow row = compare(options, train).rows[0];
  EXPECT_TRUE(row.reached);
  // From 2.8125 after step 10 to 2.5625 after step 12: a quarter of the way.
  EXPECT_EQ(row.mean.steps, 10.5);
  EXPECT_EQ(row.mean.moe_seconds, 5.25);
  EXPECT_EQ(row.mean.total_seconds, 31.5);
  EXPECT_EQ(row.mean.against_symi, 0.525);
  EXPECT_EQ(json_of(folder)["results"][0]["steps"], 10.5);
}

TEST(Compare, WithoutSymiThereIsNoTarget) {
  const TemporaryFolder folder;
  FakeTraining training;
  const Comparison comparison = compare(options_for(folder, "fixed,eplb"), std::ref(training));
  EXPECT_FALSE(comparison.target_loss.has_value());
  EXPECT_EQ(comparison.rows[0].mean.steps, 10);
  EXPECT_FALSE(comparison.rows[0].reached);
  EXPECT_FALSE(comparison.rows[0].mean.against_symi.has_value());
  const auto json = json_of(folder);
  EXPECT_TRUE(json["target_loss"].is_null());
  EXPECT_TRUE(json["baseline"].is_null());
  const std::string text = to_compare_text(comparison);
  EXPECT_NE(text.find("No symi among the strategies"), std::string::npos);
  EXPECT_EQ(text.find("did not reach"), std::string::npos);
}

TEST(Compare, OfSeveralSymiTheOneWithTheMeanLoadAsCapacityIsTheBaseline) {
  const TemporaryFolder folder;
  FakeTraining training;
  const auto baseline = [&](const std::string& strategies, const std::string& name) {
    CompareOptions options = options_for(folder, strategies);
    options.run_folder = (folder / name).string();
    return compare(options, std::ref(training)).baseline;
  };
  EXPECT_EQ(baseline("symi:capacity_factor=inf,symi:capacity_factor=1", "a"),
            "symi:capacity_factor=1");
  EXPECT_EQ(baseline("symi:capacity_factor=inf,symi:capacity_factor=2", "b"),
            "symi:capacity_factor=inf");
  EXPECT_EQ(baseline("symi-sampled,fixed", "c"), "");
}

TEST(Compare, SeedsGiveMeanAndRange) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi,fixed");
  options.seeds = 3;
  const Comparison comparison = compare(options, std::ref(training));
  EXPECT_EQ(training.trained.size(), 6U);
  EXPECT_EQ(training.options[2].config.train.seed, 3U);
  EXPECT_EQ(training.options[3].config.train.seed, 1U);
  EXPECT_EQ(training.options[4].run_folder, (folder / "run/2-fixed/seed-2").string());
  // Each seed's losses are 0.5 higher; it is compared with symi of the same seed.
  EXPECT_EQ(comparison.target_loss, 3.25);
  const CompareRow& row = comparison.rows[1];
  EXPECT_EQ(row.runs[2].target_loss, 3.75);
  EXPECT_DOUBLE_EQ(row.mean.against_symi.value(), 1.6);
  EXPECT_EQ(row.mean.validation_loss, 3.0);
  EXPECT_EQ(row.least.validation_loss, 2.5);
  EXPECT_EQ(row.most.validation_loss, 3.5);
  const auto json = json_of(folder);
  const auto& result = json["results"][1];
  EXPECT_EQ(result["validation_loss"], 3.0);
  EXPECT_EQ(result["min"]["validation_loss"], 2.5);
  EXPECT_EQ(result["max"]["validation_loss"], 3.5);
  ASSERT_EQ(result["seeds"].size(), 3U);
  EXPECT_EQ(result["seeds"][1]["seed"], 2);
  EXPECT_EQ(result["seeds"][1]["validation_loss"], 3.0);
  EXPECT_EQ(result["seeds"][1]["run"], training.options[4].run_folder);
  const std::string text = to_compare_text(comparison);
  EXPECT_NE(text.find("  least"), std::string::npos);
  EXPECT_NE(text.find("in the mean of the seeds"), std::string::npos);

  options.seeds = 0;
  options.run_folder = (folder / "other").string();
  EXPECT_EQ(message_of<InputError>([&] { compare(options, std::ref(training)); }),
            "--seeds 0 will not do; it takes a whole number from 1 to 1000");
}

TEST(Compare, TheClockIsTheConfigurations) {
  const TemporaryFolder folder;
  FakeTraining training;
  CompareOptions options = options_for(folder, "symi");
  options.config.clock.profile = "h200-ib";
  options.config.clock.shape = "glm-4.5-air";
  options.config.clock.scale = 64;
  const Comparison comparison = compare(options, std::ref(training));
  EXPECT_EQ(json_of(folder)["clock"], "virtual:h200-ib");
  EXPECT_EQ(to_compare_text(comparison)
                .find("Clock: virtual:h200-ib, at the dimensions of glm-4.5-air, each token stands "
                      "for 64 tokens. MoE and total seconds are modelled"),
            0U);
}

TEST(Compare, NothingTrainsWhenOneStrategyIsWrong) {
  const TemporaryFolder folder;
  FakeTraining training;
  EXPECT_THROW(compare(options_for(folder, "fixed,symmi"), std::ref(training)), InputError);
  EXPECT_THROW(compare(options_for(folder, "fixed,symi:factor=1"), std::ref(training)), InputError);
  EXPECT_TRUE(training.trained.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_EQ(message_of<InputError>([] { split_strategies("fixed,symi,fixed"); }),
            "--strategies fixed,symi,fixed: 'fixed' stands there twice; name it once (--seeds "
            "repeats with other seeds)");
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

TEST(Compare, TheTablesLineUpAndAreNotWide) {
  const TemporaryFolder folder;
  FakeTraining training;
  const Comparison comparison =
      compare(options_for(folder, "symi,fixed,lrmoe:ratio=0.25,symi:capacity_factor=inf"),
              std::ref(training));
  const std::vector<std::string> lines = split(to_compare_text(comparison), '\n');
  std::size_t tables = 0;
  for (std::size_t i = 0; i + 4 < lines.size(); ++i) {
    if (!lines[i].starts_with("strategy ")) {
      continue;
    }
    ++tables;
    for (std::size_t row = 1; row <= 4; ++row) {
      EXPECT_EQ(lines[i + row].size(), lines[i].size()) << lines[i + row];
    }
    EXPECT_LE(lines[i].size(), 120U);
    EXPECT_EQ(lines[i + 2].find("fixed     "), 0U);
  }
  EXPECT_EQ(tables, 2U);
}

}  // namespace
}  // namespace lrmoe::train
