#include "lrmoe/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

using testing::TemporaryFolder;

StepMetrics example(std::int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 2.5;
  m.aux_loss = 0.01;
  m.lr = 1e-3;
  m.grad_norm = 0.75;
  m.clip_coefficient = 0.5;
  m.tokens = 4096;
  m.seconds = 1.5;
  m.moe_seconds = 0.9;
  m.bytes_update = 11;
  m.moe = {0.3, 0.4, 0.1, 0.2, 0.25, 1.25, 1.125, 1.5, 1.75, 100, 200, 3, 1LL << 40};
  m.layer_index = {0, 2};
  m.layers = {m.moe, m.moe};
  m.layers[1].bytes_forward = 101;
  m.layers[1].added_variance = 0.125;
  return m;
}

TEST(Metrics, TheLineHasTheFieldsThatOtherProgramsRead) {
  const auto json = nlohmann::json::parse(to_json_line(example(7)));
  for (const char* name :
       {"step", "loss", "lr", "grad_norm", "tokens", "moe_seconds", "moe_forward_seconds",
        "moe_backward_seconds", "retained_ratio", "added_variance", "clip_coefficient",
        "imbalance_forward", "imbalance_backward", "bytes_forward", "bytes_backward",
        "dropped_pairs", "memory_peak_bytes"}) {
    EXPECT_TRUE(json.contains(name) && json[name].is_number()) << name;
  }
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["memory_peak_bytes"], 1LL << 40);
  EXPECT_EQ(json["layers"]["layer"], (std::vector<int>{0, 2}));
  EXPECT_EQ(json["layers"]["bytes_forward"], (std::vector<int>{100, 101}));
  EXPECT_EQ(json["layers"]["imbalance_backward"], (std::vector<double>{1.75, 1.75}));
  EXPECT_EQ(json["moe_update_seconds"], 0.2);
  EXPECT_EQ(json["layers"]["moe_exchange_seconds"], (std::vector<double>{0.1, 0.1}));
  EXPECT_EQ(json["clock"], "measured");
  for (const char* name : {"validation_loss", "measured", "parts", "memory", "notes"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
}

TEST(Metrics, AnAuditComesBack) {
  StepMetrics m = example(7);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(m)).contains("audit"));
  m.audit.emplace();
  m.audit->seconds = 0.5;
  m.audit->layers = {{0, std::nullopt, std::nullopt, {0.75, 0.25}},
                     {1, Agreement{0.5, 1.5}, Agreement{0.25, NAN}, {1, 0}}};
  m.audit->rest = {0.125, 4};
  const auto json = nlohmann::json::parse(to_json_line(m))["audit"];
  EXPECT_EQ(json["seconds"], 0.5);
  EXPECT_EQ(json["layers"][0]["layer"], 0);
  EXPECT_FALSE(json["layers"][0].contains("experts"));
  EXPECT_EQ(json["layers"][0]["dense"]["cosine"], 0.75);
  EXPECT_EQ(json["layers"][1]["experts"]["relative_error"], 1.5);
  EXPECT_TRUE(json["layers"][1]["router"]["relative_error"].is_null());
  EXPECT_EQ(json["rest"]["relative_error"], 4);
  EXPECT_EQ(to_json_line(from_json_line(to_json_line(m))), to_json_line(m));
}

TEST(Metrics, AVirtualClockKeepsTheMeasuredSecondsBeside) {
  StepMetrics m = example(7);
  m.clock = "virtual:h200-ib";
  m.measured = {10, 9, 3, 4, 1, 2};
  m.parts = {0.01, 0.02, 0.03, 0.04, 0.05, 0.06};
  m.memory = {1, 2, 3, 4, 5};
  m.notes = {{2, "all pairs are kept: so"}};
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(json["clock"], "virtual:h200-ib");
  EXPECT_EQ(json["measured"]["moe_seconds"], 9);
  EXPECT_EQ(json["measured"]["moe_exchange_seconds"], 1);
  EXPECT_EQ(json["parts"]["select"], 0.03);
  EXPECT_EQ(json["parts"]["rest"], 0.06);
  EXPECT_EQ(json["memory"]["weights"], 1);
  EXPECT_EQ(json["memory"]["workspace"], 5);
  EXPECT_EQ(json["notes"][0]["layer"], 2);
  const StepMetrics again = from_json_line(to_json_line(m));
  EXPECT_EQ(to_json_line(again), to_json_line(m));
  EXPECT_EQ(again.clock, m.clock);
  EXPECT_EQ(again.measured->moe_backward_seconds, 4);
  EXPECT_EQ(again.memory, m.memory);
  EXPECT_EQ(again.notes, m.notes);
}

TEST(Metrics, RoundTrip) {
  StepMetrics m = example(7);
  m.validation_loss = 1.75;
  const StepMetrics again = from_json_line(to_json_line(m));
  EXPECT_EQ(to_json_line(again), to_json_line(m));
  EXPECT_EQ(again.moe.memory_peak_bytes, 1LL << 40);
  EXPECT_EQ(again.layers.at(1).added_variance, 0.125);
  EXPECT_EQ(again.validation_loss, 1.75);
}

TEST(Metrics, NumbersThatAreNotFiniteBecomeNull) {
  StepMetrics m = example(1);
  m.loss = std::nan("");
  m.moe.added_variance = INFINITY;
  m.layers[0].imbalance_forward = -INFINITY;
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["added_variance"].is_null());
  EXPECT_TRUE(json["layers"]["imbalance_forward"][0].is_null());
  EXPECT_TRUE(std::isnan(from_json_line(to_json_line(m)).loss));
}

TEST(Metrics, EachStepIsInTheFileAtOnceAndACutLastLineIsLeftOut) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsWriter writer(path);
  writer.write(example(1));
  EXPECT_EQ(read_metrics(path).size(), 1U);
  writer.write(example(2));
  const std::string whole = read_text(path);
  write_file(path, whole.substr(0, whole.size() - 9));
  ASSERT_EQ(read_metrics(path).size(), 1U);
  write_file(path, whole.substr(0, whole.size() - 1));  // all but the newline
  EXPECT_EQ(read_metrics(path).size(), 1U);
}

TEST(Metrics, ADamagedLineIsNamed) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  write_file(path, to_json_line(example(1)) + "\n{\"step\":2}\n" + to_json_line(example(3)) + "\n");
  const std::string message = testing::message_of<InputError>([&] { read_metrics(path); });
  EXPECT_EQ(message.find("'" + path.string() + "', line 2: not a line of metrics: "), 0U);
}

TEST(Metrics, TruncateKeepsTheStepsUpToTheCheckpoint) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  truncate_metrics(path, 3);
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    MetricsWriter writer(path);
    for (std::int64_t step = 1; step <= 5; ++step) {
      writer.write(example(step));
    }
    OutputFile cut(path, OutputFile::Mode::append);
    cut.write("{\"step\":6,\"lo");
  }
  truncate_metrics(path, 3);
  MetricsWriter(path).write(example(4));
  const std::vector<StepMetrics> steps = read_metrics(path);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[2].step, 3);
  EXPECT_EQ(steps[3].step, 4);
  truncate_metrics(path, 0);
  EXPECT_TRUE(read_metrics(path).empty());
}

TEST(Metrics, AFullDiskIsARunError) {
  MetricsWriter writer("/dev/full");
  EXPECT_EQ(testing::message_of<RunError>([&] { writer.write(example(1)); }),
            "cannot write '/dev/full': No space left on device");
}

}  // namespace
}  // namespace lrmoe::train
