#include "lrmoe/train/run_folder.h"

#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "lrmoe/train/metrics.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

void make_checkpoint(const fs::path& run, std::int64_t step) {
  AtomicFolder folder = begin_checkpoint(run, step);
  write_file(folder.path() / "weights", std::to_string(step));
  folder.commit();
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> steps;
  for (const Checkpoint& checkpoint : list_checkpoints(run)) {
    steps.push_back(checkpoint.step);
  }
  return steps;
}

TEST(RunFolder, ANewRunIsMadeWithItsConfiguration) {
  const TemporaryFolder folder;
  Config config;
  config.train.steps = 17;
  const RunFolder run = open_run(folder / "a/b", config, false);
  EXPECT_FALSE(run.checkpoint.has_value());
  EXPECT_EQ(load_config(run.config().string(), {}).train.steps, 17);
}

TEST(RunFolder, ARunNeverWritesOverAnother) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run";
  open_run(path, Config{}, false);
  EXPECT_EQ(message_of<InputError>([&] { open_run(path, Config{}, false); }),
            "run folder '" + path.string() +
                "' is not empty; --resume goes on with the run in it, --run names another");
  write_file(folder / "file", "x");
  EXPECT_EQ(message_of<InputError>([&] { open_run(folder / "file", Config{}, false); }),
            "cannot make the run folder '" + (folder / "file").string() + "': Not a directory");
}

TEST(RunFolder, ResumeTakesTheNewestCheckpointAndCutsTheMetrics) {
  const TemporaryFolder folder;
  Config config;
  const RunFolder run = open_run(folder / "run", config, false);
  {
    MetricsWriter writer(run.metrics());
    for (std::int64_t step = 1; step <= 12; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      writer.write(metrics);
    }
  }
  make_checkpoint(run.path, 9);
  make_checkpoint(run.path, 10);
  config.train.steps = 999;
  const RunFolder again = open_run(run.path, config, true);
  ASSERT_TRUE(again.checkpoint.has_value());
  EXPECT_EQ(again.checkpoint->step, 10);
  EXPECT_EQ(read_text(again.checkpoint->path / "weights"), "10");
  // Nothing changes before the checkpoint was read.
  EXPECT_GT(read_metrics(again.metrics()).back().step, 10);
  EXPECT_NE(load_config(again.config().string(), {}).train.steps, 999);
  continue_run(again, config);
  EXPECT_EQ(read_metrics(again.metrics()).back().step, 10);
  EXPECT_EQ(load_config(again.config().string(), {}).train.steps, 999);
}

TEST(RunFolder, ResumeBeforeTheFirstCheckpointStartsOver) {
  const TemporaryFolder folder;
  const RunFolder run = open_run(folder / "run", Config{}, false);
  StepMetrics first;
  first.step = 1;
  MetricsWriter(run.metrics()).write(first);
  const RunFolder again = open_run(run.path, Config{}, true);
  EXPECT_FALSE(again.checkpoint.has_value());
  continue_run(again, Config{});
  EXPECT_TRUE(read_metrics(again.metrics()).empty());
}

TEST(RunFolder, ResumeRefusesWhatIsNoRunAndAnotherModel) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run";
  const std::string where = "run folder '" + path.string() + "'";
  EXPECT_EQ(message_of<InputError>([&] { open_run(path, Config{}, true); }),
            where +
                " holds no run to resume (no config.toml in it); without --resume a new run "
                "starts in an empty folder");
  open_run(path, Config{}, false);
  make_checkpoint(path, 10);
  Config shorter;
  shorter.train.steps = 9;
  EXPECT_EQ(message_of<InputError>([&] { open_run(path, shorter, true); }),
            where + " has 10 steps already; train.steps = 9 asks for fewer");
  Config other;
  other.model.layers = 6;
  EXPECT_EQ(message_of<InputError>([&] { open_run(path, other, true); }),
            where +
                " was begun with model.layers = 4 (now 6); resume with the same value, or "
                "name another folder with --run");
}

TEST(Checkpoints, OnlyCompleteOnesAreListed) {
  const TemporaryFolder folder;
  make_checkpoint(folder.path(), 100);
  make_checkpoint(folder.path(), 9);
  fs::create_directory(folder / ".step-200.partial");
  for (const char* name : {"step-", "step-007", "step-7x", "step--3", "steps-8", "step-+5"}) {
    fs::create_directory(folder / name);
  }
  write_file(folder / "step-300", "a file, no folder");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{9, 100}));
  EXPECT_EQ(newest_checkpoint(folder.path())->step, 100);
  EXPECT_FALSE(newest_checkpoint(folder / "nowhere").has_value());
}

TEST(Checkpoints, AFailingWriteLeavesTheOldOnesWhole) {
  const TemporaryFolder folder;
  make_checkpoint(folder.path(), 1);
  const auto fail = [&](std::int64_t step) {
    AtomicFolder made = begin_checkpoint(folder.path(), step);
    fs::create_symlink("/dev/full", made.path() / "weights");
    write_file(made.path() / "weights", "x");
    made.commit();
  };
  EXPECT_EQ(message_of<RunError>([&] { fail(2); }),
            "cannot write '/dev/full': No space left on device");
  EXPECT_THROW(fail(1), RunError);
  EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{1});
  EXPECT_EQ(read_text(folder / "step-1/weights"), "1");
}

TEST(Checkpoints, PruningKeepsTheNewestAndRemovesLeftOvers) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {8, 10, 2, 4}) {
    make_checkpoint(folder.path(), step);
  }
  fs::create_directory(folder / ".step-12.partial");
  write_file(folder / "config.toml", "");
  prune_checkpoints(folder.path(), 2);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{8, 10}));
  EXPECT_FALSE(fs::exists(folder / ".step-12.partial"));
  EXPECT_TRUE(fs::exists(folder / "config.toml"));
  prune_checkpoints(folder.path(), 5);
  EXPECT_EQ(steps_in(folder.path()).size(), 2U);
}

}  // namespace
}  // namespace lrmoe::train
