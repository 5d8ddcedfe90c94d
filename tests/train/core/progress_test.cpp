#include "lrmoe/train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lrmoe/base/names.h"

namespace lrmoe::train {
namespace {

/// A run of steps of one second each, on a clock that the test turns.
struct FakeRun {
  double now = 100;
  int width = 200;
  std::ostringstream out;

  ProgressOptions options(bool terminal) {
    ProgressOptions made;
    made.steps = 20;
    made.terminal = terminal;
    made.interval = 5;
    made.width = [this] { return width; };
    made.clock = [this] { return now; };
    return made;
  }

  void step(Progress& progress, std::int64_t n, double seconds) {
    now += seconds;
    StepMetrics m;
    m.step = n;
    m.loss = 2.125;
    m.lr = 1e-3;
    m.tokens = 4096;
    m.seconds = 1;
    m.moe_seconds = 0.45;
    m.moe.imbalance_forward = 1.25;
    m.moe.imbalance_backward = 1.5;
    m.moe.memory_peak_bytes = 3 << 20;
    progress.update(m);
  }
};

TEST(Progress, ALogGetsPlainLinesEveryFewSecondsAndTheLast) {
  FakeRun run;
  Progress progress(run.out, run.options(false));
  for (int n = 1; n <= 14; ++n) {
    run.step(progress, n, 1);
  }
  progress.note("validation loss 2.0");
  progress.finish();
  progress.finish();
  const std::vector<std::string> lines = split(run.out.str(), '\n');
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0],
            "step 1/20  loss 2.1250  lr 1.00e-03  4096 tokens/s  imbalance 1.25/1.50  MoE 45%  "
            "memory 3 MiB  left 19s");
  EXPECT_EQ(lines[1].find("step 6/20  "), 0U);
  EXPECT_EQ(lines[2].find("step 11/20  "), 0U);
  EXPECT_EQ(lines[3], "validation loss 2.0");
  EXPECT_EQ(lines[4].find("step 14/20  "), 0U);
  EXPECT_EQ(lines[4].substr(lines[4].size() - 7), "left 6s");
  EXPECT_EQ(lines[5], "");
  const std::string text = run.out.str();
  EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                          [](char c) { return c == '\n' || (c >= ' ' && c < 127); }));
}

TEST(Progress, ATerminalHasOneLineThatKeepsToItsWidth) {
  FakeRun run;
  run.width = 60;
  Progress progress(run.out, run.options(true));
  for (int n = 1; n <= 20; ++n) {
    run.step(progress, n, 1);
  }
  progress.finish();
  const std::string text = run.out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  for (const std::string& drawn : split(text, '\r')) {
    EXPECT_LE(trimmed(drawn).size(), 59U) << drawn;
  }
  // What matters least went first.
  const std::string last = trimmed(split(text, '\r').back());
  EXPECT_EQ(last, "step 20/20  loss 2.1250  4096 tokens/s  left 0s");
}

TEST(Progress, AVeryNarrowTerminalIsNotOverrun) {
  FakeRun run;
  run.width = 10;
  Progress progress(run.out, run.options(true));
  run.step(progress, 1, 1);
  EXPECT_EQ(run.out.str(), "\rstep 1/20");
}

TEST(Progress, ATerminalIsNotRewrittenMoreOftenThanAsked) {
  FakeRun run;
  Progress progress(run.out, run.options(true));
  for (int n = 1; n <= 20; ++n) {
    run.step(progress, n, 0.01);
  }
  const std::string text = run.out.str();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 3);
  progress.finish();
  EXPECT_NE(run.out.str().find("step 20/20"), std::string::npos);
}

TEST(Progress, AShorterLineLeavesNothingOfTheLongerOne) {
  FakeRun run;
  Progress progress(run.out, run.options(true));
  run.step(progress, 1, 1);
  const std::size_t before = run.out.str().size();
  run.width = 40;
  run.step(progress, 2, 1);
  const std::string drawn = run.out.str().substr(before);
  EXPECT_GE(drawn.find_last_of('\r'), before - 1);  // blanks over all of the longer line
  progress.note("a note");
  EXPECT_NE(run.out.str().find("\ra note\n\rstep 2/20"), std::string::npos);
}

TEST(Progress, Durations) {
  EXPECT_EQ(print_duration(-1), "0s");
  EXPECT_EQ(print_duration(59.4), "59s");
  EXPECT_EQ(print_duration(192), "3m12s");
  EXPECT_EQ(print_duration(3900), "1h05m");
}

}  // namespace
}  // namespace lrmoe::train
