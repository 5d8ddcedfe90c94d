// The program as a user meets it: what goes wrong is one line on standard error
// and the right exit status.
#include <gtest/gtest.h>

#include <algorithm>

#include "lrmoe/base/atomic_file.h"
#include "tests/cli/program.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using lrmoe::testing::expect_usage_error;
using lrmoe::testing::lrmoe_in;
using lrmoe::testing::Outcome;
using lrmoe::testing::TemporaryFolder;

TEST(Usage, HelpAndVersion) {
  const TemporaryFolder folder;
  for (const char* arguments : {"--help", "train --help", "compare --help", "eval --help",
                                "trace make --help", "--version"}) {
    const Outcome outcome = lrmoe_in(folder, arguments);
    EXPECT_EQ(outcome.status, 0) << arguments;
    EXPECT_EQ(outcome.error, "") << arguments;
    EXPECT_NE(outcome.output, "") << arguments;
  }
  EXPECT_NE(lrmoe_in(folder, "train --help").output.find("--resume"), std::string::npos);
}

TEST(Usage, WrongCommandsAndOptions) {
  expect_usage_error("", "lrmoe: no command; there are: ");
  expect_usage_error("trian", "lrmoe: unknown command 'trian'; did you mean 'train'?\n");
  expect_usage_error("--bogus", "lrmoe: unknown option '--bogus'");
  expect_usage_error("train", "lrmoe: train: config is required; see lrmoe train --help\n");
  expect_usage_error("train a.toml b", "lrmoe: train: unexpected argument 'b'");
  expect_usage_error("train a.toml --resum",
                     "lrmoe: train: unknown option '--resum'; did you mean '--resume'?\n");
  expect_usage_error("train a.toml --resume", "lrmoe: --resume needs --run FOLDER");
  expect_usage_error("compare a.toml", "lrmoe: compare: --strategies is required");
  expect_usage_error("compare a.toml --strategies fixed --target-loss low", "lrmoe: compare: ");
  expect_usage_error("eval", "lrmoe: eval: model is required; see lrmoe eval --help\n");
  expect_usage_error("eval run", "lrmoe: eval: --tokens is required; see lrmoe eval --help\n");
  expect_usage_error("eval run --tokens ids.npy --ranks 0", "lrmoe: eval: --ranks: Value 0");
  expect_usage_error("eval run --tokens ids.npy",
                     "lrmoe: 'run' does not exist; name a Hugging Face folder, a run folder or a "
                     "checkpoint in it (step-N)\n");
}

TEST(Usage, WrongConfigurations) {
  expect_usage_error("train none.toml",
                     "lrmoe: cannot read 'none.toml': No such file or directory\n");
  expect_usage_error("train a.toml --set train.steps=0",
                     "lrmoe: --set train.steps=0: train.steps = 0 will not do; it takes a whole "
                     "number, at least 1\n");
  expect_usage_error("train a.toml --set model.top_k=33",
                     "lrmoe: a.toml: model.top_k = 33 is more");
  expect_usage_error("compare a.toml --strategies fixed,simi",
                     "lrmoe: strategy 'simi': strategy.name = 'simi' is not a strategy (nearest: "
                     "'symi'); there are: ");
}

TEST(Usage, WhatIsKnownToFailIsSaidBeforeTraining) {
  expect_usage_error("train a.toml --json none/x.json",
                     "lrmoe: --json 'none/x.json': there is no folder 'none'\n");
  expect_usage_error("compare a.toml --strategies fixed --json .",
                     "lrmoe: --json '.': that is a folder; name a file\n");
  for (const char* target : {"nan", "inf", "-1"}) {
    expect_usage_error("compare a.toml --strategies fixed --target-loss " + std::string(target),
                       "lrmoe: --target-loss " + std::string(target) + " will not do");
  }
  expect_usage_error("train a.toml --set clock.scale=1e308",
                     "lrmoe: --set clock.scale=1e308: clock.scale");
}

TEST(Usage, TextThatCannotBeRead) {
  const TemporaryFolder folder;
  lrmoe::write_file(folder / "b.toml", "[data]\npath = \"/dev/zero\"\n");
  EXPECT_EQ(lrmoe_in(folder, "train b.toml --run r --quiet").error,
            "lrmoe: data.path = '/dev/zero': neither a file nor a folder; it takes a text file or "
            "a folder of them\n");
  lrmoe::write_file(folder / "a.toml", "[data]\npath = \"none.txt\"\n");
  const Outcome outcome = lrmoe_in(folder, "train a.toml --run r --quiet");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error,
            "lrmoe: data.path = 'none.txt': cannot read 'none.txt': No such file or directory\n");
}

}  // namespace
