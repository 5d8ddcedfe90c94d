// `lrmoe replay`, `plan` and `estimate` as a user calls them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lrmoe/trace/writer.h"
#include "tests/cli/program.h"
#include "tests/replay/helpers.h"

namespace {

using lrmoe::testing::expect_usage_error;
using lrmoe::testing::lrmoe_in;
using lrmoe::testing::Outcome;
using lrmoe::testing::TemporaryFolder;
using Json = nlohmann::json;

/// A folder with "t": two steps, two layers, 16 experts, top 4.
void write_trace(const TemporaryFolder& folder) {
  lrmoe::trace::write(folder / "t", lrmoe::replay::random_trace(2, 2, 300, 16, 4));
}

void expect_refused(const std::string& arguments, const std::string& part) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome = lrmoe_in(folder, arguments);
  EXPECT_EQ(outcome.status, 2) << arguments;
  EXPECT_EQ(outcome.output, "") << arguments;
  EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
}

TEST(ReplayCommand, PrintsTablesAndWritesJson) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome = lrmoe_in(
      folder,
      "replay --trace t --ranks 4 --slots 5 --model glm-4.5-air --profile a100-ib --scale 8 "
      "--strategies fixed,symi:slots=6,lrmoe:ratio=0.5:chunks=2 --json r.json");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.output.find("fullest rank / mean"), std::string::npos);
  EXPECT_NE(outcome.output.find("placement planned on the step before"), std::string::npos);
  const Json json = Json::parse(lrmoe::read_text(folder / "r.json"));
  EXPECT_EQ(json["format"], "lrmoe-replay");
  EXPECT_EQ(json["model"], "glm-4.5-air");
  EXPECT_EQ(json["profile"], "a100-ib");
  ASSERT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["results"][0]["slots"], 4);
  EXPECT_EQ(json["results"][1]["slots"], 6);
  EXPECT_EQ(json["results"][2]["slots"], 5);
  EXPECT_EQ(json["results"][2]["chunks"], 2);
  EXPECT_EQ(json["results"][2]["layers"].size(), 4u);
}

TEST(ReplayCommand, TheMemoryTableHasBothModesAndChunks) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome = lrmoe_in(folder, "replay --trace t --ranks 4 --memory-table --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(Json::parse(outcome.output)["results"].size(), 12u);
  EXPECT_NE(outcome.error.find("lrmoe:activations=recompute:chunks=4"), std::string::npos);
}

TEST(ReplayCommand, TheProfileSaysWhatATimeMeans) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome =
      lrmoe_in(folder, "replay --trace t --ranks 4 --strategies lrmoe:time=0.00001 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json total = Json::parse(outcome.output)["results"][0]["total"];
  EXPECT_LT(total["kept_pairs"].get<int>(), total["routed_pairs"].get<int>());
}

TEST(ReplayCommand, TheDefaultHasFixedInBothModes) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome = lrmoe_in(folder, "replay --trace t --ranks 4 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json results = Json::parse(outcome.output)["results"];
  ASSERT_EQ(results.size(), 6u);
  EXPECT_EQ(results[1]["strategy"], "fixed:activations=recompute");
  EXPECT_EQ(results[1]["activations"], "recompute");
  EXPECT_EQ(results[5]["activations"], "recompute");
}

TEST(ReplayCommand, WrongInputIsOneLine) {
  expect_usage_error("replay", "lrmoe: replay: --trace is required");
  expect_usage_error("replay --trace none", "lrmoe: ");
  expect_refused("replay --trace t --ranks 2 --slots 7", "slots must be at least 8");
  expect_refused("replay --trace t --strategies simi", "symi");
  expect_refused("replay --trace t --strategies lrmoe:ratoi=1", "'ratio'");
  expect_refused("replay --trace t --strategies lrmoe:chunks=0", "chunks = 0");
  expect_refused("replay --trace t --profile h100", "h200-ib");
  expect_refused("replay --trace t --profile this-machine", "this-machine");
  expect_refused("replay --trace t --model qwen", "qwen3-30b-a3b");
  expect_refused("replay --trace t --ratio 2", "--ratio 2");
  expect_refused("replay --trace t --placement later", "next-step or same-step");
  expect_refused("replay --trace t --scale 0", "--scale 0");
  expect_refused("replay --trace t --memory 0", "--memory must be above 0");
  expect_refused("replay --trace t --memory-table --strategies fixed", "leave out --strategies");
  expect_refused("replay --trace t --memory-table --activations keep", "leave out --activations");
  expect_refused("replay --trace t --memory-table --chunks 2", "leave out --chunks");
  expect_refused("replay --trace t --ranks 16385", "--ranks");
  expect_refused("replay --trace t --strategies symi-sampled:time=0.001", "symi-sampled");
}

TEST(PlanCommand, PrintsASummaryAndWritesAPlan) {
  const TemporaryFolder folder;
  write_trace(folder);
  const Outcome outcome = lrmoe_in(
      folder, "plan --trace t --layer 1 --step 1 --ranks 4 --slots 5 --ratio 0.25 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json plan = Json::parse(outcome.output);
  EXPECT_EQ(plan["format"], "lrmoe-plan");
  EXPECT_EQ(plan["slots"], 5);
  EXPECT_EQ(plan["memory"].size(), 4u);
  EXPECT_NE(outcome.error.find("placement planned on step 1"), std::string::npos);
  expect_refused("plan --trace t --layer 2", "it takes 0 to 1");
  expect_refused("plan --trace t --layer 0 --step 9", "--step 9");
  expect_refused("plan --trace t --layer 0 --ranks 3 --slots 5", "at least 6");
}

TEST(EstimateCommand, NamesConfigurationsAndBudgets) {
  const TemporaryFolder folder;
  lrmoe::write_file(folder / "c.toml",
                    "[parallel]\nranks = 4\n[strategy]\nname = \"symi\"\n[model]\nexperts = 16\n");
  const Outcome own = lrmoe_in(folder, "estimate --model c.toml --json -");
  ASSERT_EQ(own.status, 0) << own.error;
  const Json estimate = Json::parse(own.output);
  EXPECT_EQ(estimate["ranks"], 4);
  EXPECT_EQ(estimate["strategy"], "symi");
  EXPECT_EQ(estimate["experts"], 16);
  EXPECT_TRUE(estimate["within_budget"].is_null());
  // The configuration's budget, and one that nothing fits.
  lrmoe::write_file(folder / "b.toml",
                    lrmoe::read_text(folder / "c.toml") + "[memory]\nbudget = \"8MB\"\n");
  const Outcome tight =
      lrmoe_in(folder, "estimate --model b.toml --strategy lrmoe --activations keep --json -");
  ASSERT_EQ(tight.status, 0) << tight.error;
  const Json within = Json::parse(tight.output);
  EXPECT_EQ(within["budget"], 8000000);
  EXPECT_FALSE(within["fits"].get<bool>());
  EXPECT_TRUE(within["within_budget"]["planned"].get<bool>()) << tight.output;
  EXPECT_LE(within["within_budget"]["bytes"].get<std::int64_t>(), 8000000);
  ASSERT_FALSE(within["within_budget"]["notes"].empty());
  EXPECT_NE(tight.error.find("note: to fit the memory budget of "), std::string::npos);
  const Outcome refused =
      lrmoe_in(folder, "estimate --model b.toml --strategy lrmoe --memory 1KiB");
  EXPECT_EQ(refused.status, 0) << refused.error;
  EXPECT_NE(refused.output.find("a run would be refused: [memory] budget = "), std::string::npos);
  EXPECT_NE(refused.output.find("the smallest budget that would do: "), std::string::npos);
  const Outcome outcome = lrmoe_in(
      folder, "estimate --model deepseek-v3 --ranks 64 --tokens 262144 --memory 80GB --ratio 0.5");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.output.find("largest step that fits"), std::string::npos);
  EXPECT_NE(outcome.output.find("smallest budget"), std::string::npos);
  expect_refused("estimate --model own", "there is no such model");
  expect_refused("estimate --model qwen3-30b-a3b --memory lots", "--memory");
  expect_refused("estimate --model qwen3-30b-a3b --imbalance 99", "--imbalance 99");
  expect_refused("estimate --model qwen3-30b-a3b --memory 0", "--memory must be above 0");
  expect_refused("estimate --model qwen3-30b-a3b --ranks 65536", "--ranks");
}

}  // namespace
