// `lrmoe trace` as a user calls it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/trace/trace.h"
#include "tests/cli/program.h"

namespace lrmoe::testing {
namespace {

TEST(TraceCommand, MakesAndDescribes) {
  const TemporaryFolder folder;
  const Outcome made = lrmoe_in(folder,
                                "trace make --workload W1_hot_expert_set --experts 8 --top-k 2 "
                                "--tokens 128 --seed 1234 --steps 2 --ranks 4 --output t");
  EXPECT_EQ(made.status, 0) << made.error;
  EXPECT_EQ(made.output, "t: 2 x 1 x 128 (steps x layers x tokens), 8 experts, top-2\n");
  EXPECT_EQ(trace::Trace::open(folder / "t").info().ranks, 4);
  const Outcome told = lrmoe_in(folder, "trace info t --ranks 4 --json j --heat-map h.png");
  EXPECT_EQ(told.status, 0) << told.error;
  EXPECT_NE(told.output.find("4 ranks"), std::string::npos) << told.output;
  const auto json = nlohmann::json::parse(read_text(folder / "j"));
  EXPECT_EQ(json["layers"][0]["tokens"], 256);
  EXPECT_TRUE(std::filesystem::exists(folder / "h.png"));
  const Outcome piped = lrmoe_in(folder, "trace info t --json -");
  EXPECT_EQ(nlohmann::json::parse(piped.output)["format"], "lrmoe-trace-info");
}

TEST(TraceCommand, Converts) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl",
             "{\"layer\":0,\"token\":0,\"experts\":[2,0],\"gates\":[0.5,0.5]}\n");
  const Outcome done =
      lrmoe_in(folder, "trace convert a.jsonl t --model mine --experts 4 --hidden 64");
  EXPECT_EQ(done.status, 0) << done.error;
  EXPECT_EQ(done.output, "t: 1 x 1 x 1 (steps x layers x tokens), 4 experts, top-2\n");
  EXPECT_EQ(trace::Trace::open(folder / "t").info().model, "mine");
  EXPECT_EQ(trace::Trace::open(folder / "t").info().hidden, 64);
}

TEST(TraceCommand, MistakesAreOneLine) {
  expect_usage_error("trace", "lrmoe: trace: A subcommand is required; see lrmoe trace --help\n");
  expect_usage_error("trace make --workload zipf",
                     "lrmoe: trace make: --output is required; see lrmoe trace make --help\n");
  expect_usage_error("trace make --workload W9 --output t",
                     "lrmoe: unknown workload 'W9'; there are: W0_balanced, ");
  expect_usage_error("trace make --workload zipf --output t --expert 3",
                     "lrmoe: trace make: unknown option '--expert'; did you mean '--experts'?\n");
  expect_usage_error("trace make --workload zipf --output none/t",
                     "lrmoe: cannot write 'none/t': No such file or directory\n");
  expect_usage_error("trace make --workload zipf --output t --seed -1",
                     "lrmoe: trace make: --seed");
  expect_usage_error("trace convert a.toml t --hidden 1000000000",
                     "lrmoe: trace convert: --hidden");
  expect_usage_error("trace convert a.toml t",
                     "lrmoe: 'a.toml' line 2: 3 numbers; it takes k experts");
  expect_usage_error("trace convert a.toml a.toml",
                     "lrmoe: OUT 'a.toml' is the file to read; name another\n");
  expect_usage_error("trace info a.toml", "lrmoe: 'a.toml': no safetensors file, or cut off");
  expect_usage_error("trace info none", "lrmoe: cannot read 'none': No such file or directory\n");
}

}  // namespace
}  // namespace lrmoe::testing
