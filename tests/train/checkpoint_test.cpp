// Checkpoints: the same bits as a run that never stopped, other ranks and
// strategies, interrupted and failing runs, damaged files.
#include "lrmoe/train/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/base/safetensors.h"
#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

TrainOptions stopping_at(TrainOptions options, std::int64_t step) {
  options.stop = [step](const TrainResult& result) { return result.steps == step; };
  return options;
}

TrainOptions resuming(TrainOptions options, const Config& config) {
  options.config = config;
  options.resume = true;
  options.stop = nullptr;
  return options;
}

// The one line with which training fails; empty when it does not.
template <class Exception>
std::string failure(const TrainOptions& options) {
  try {
    train(options);
  } catch (const Exception& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Resuming : public testing::TestWithParam<std::tuple<std::string, Dtype, model::RouterKind>> {
};

TEST_P(Resuming, gives_the_bits_of_a_run_that_never_stopped) {
  const auto& [strategy, dtype, router] = GetParam();
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 10;
  config.train.dtype = dtype;
  config.model.router = router;
  config = with_strategy(config, strategy);
  const TrainResult whole = train(options_for(config, folder, "whole"));
  const TrainOptions options = stopping_at(options_for(config, folder, "halves"), 4);
  TrainResult first = train(options);
  EXPECT_EQ(first.losses.size(), 4U);
  const TrainResult second = train(resuming(options, config));
  EXPECT_EQ(second.steps, 10);
  first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(first.losses, whole.losses);
  EXPECT_EQ(second.validations.back().loss, whole.validations.back().loss);
  for (const char* name :
       {"model.safetensors", "experts-0-of-2.safetensors", "experts-1-of-2.safetensors"}) {
    EXPECT_EQ(contents(folder / "whole/step-10/" + name),
              contents(folder / "halves/step-10/" + name))
        << name;
  }
  EXPECT_EQ(read_metrics(folder / "halves/metrics.jsonl").size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, Resuming,
    testing::Values(std::tuple("fixed", Dtype::float32, model::RouterKind::softmax),
                    std::tuple("symi", Dtype::float32, model::RouterKind::sigmoid),
                    std::tuple("symi", Dtype::bfloat16, model::RouterKind::softmax),
                    std::tuple("lrmoe:ratio=0.25", Dtype::float32, model::RouterKind::softmax),
                    std::tuple("lrmoe:ratio=0.25:activations=recompute", Dtype::float32,
                               model::RouterKind::sigmoid)));

// Of a checkpoint's model file.
std::vector<std::int64_t> score_curves(const fs::path& run, std::int64_t step) {
  const safetensors::Reader file(run / ("step-" + std::to_string(step)) / "model.safetensors");
  std::vector<std::int64_t> counts;
  for (const int layer : {0, 1}) {
    const auto& tensor = file.at("layers." + std::to_string(layer) + ".score_curves");
    const std::size_t begin = counts.size();
    counts.resize(begin + tensor.bytes.size() / sizeof(std::int64_t));
    std::memcpy(counts.data() + begin, tensor.bytes.data(), tensor.bytes.size());
  }
  return counts;
}

TEST(Checkpoint, score_curves_go_on_with_other_ranks) {
  const TemporaryFolder folder;
  Config config = with_strategy(tiny_config(folder, 2), "lrmoe:ratio=0.25");
  config.train.steps = 5;
  train(options_for(config, folder, "run"));
  const std::vector<std::int64_t> before = score_curves(folder / "run", 5);
  EXPECT_GT(std::accumulate(before.begin(), before.end(), std::int64_t{0}), 0);
  fs::copy(folder / "run", folder / "fixed", fs::copy_options::recursive);

  Config other = with_strategy(tiny_config(folder, 4), "lrmoe:ratio=0.25");
  other.train.steps = 8;
  const TrainResult rest = train(resuming(options_for(other, folder, "run"), other));
  EXPECT_EQ(rest.losses.size(), 3U);
  EXPECT_NE(score_curves(folder / "run", 8), before);
  // The first step after it buys by the curves: a flat one would predict no variance
  // but for the share of zeros.
  const std::vector<StepMetrics> steps = read_metrics(folder / "run/metrics.jsonl");
  EXPECT_NEAR(steps.at(5).moe.predicted_variance, steps.at(4).moe.predicted_variance,
              0.2 * steps.at(4).moe.predicted_variance);

  // A strategy that does not sample hands them on as they are.
  other = with_strategy(tiny_config(folder, 2), "fixed");
  other.train.steps = 6;
  train(resuming(options_for(other, folder, "fixed"), other));
  EXPECT_EQ(score_curves(folder / "fixed", 6), before);
}

TEST(Checkpoint, goes_on_with_other_ranks_and_strategies) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 10;
  config.strategy.name = "symi";
  const TrainResult whole = train(options_for(config, folder, "whole"));
  const auto compare = [&](int ranks, const std::string& strategy, const std::string& name) {
    const TrainOptions options = stopping_at(options_for(config, folder, name), 5);
    train(options);
    Config other = tiny_config(folder, ranks);
    other.train.steps = 10;
    other.strategy.name = strategy;
    const TrainResult rest = train(resuming(options, other));
    ASSERT_EQ(rest.losses.size(), 5U) << name;
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(rest.losses[i], whole.losses[5 + i], 2e-5 * whole.losses[5 + i]) << name;
    }
  };
  compare(4, "symi", "more");
  compare(1, "fixed", "one");
  compare(3, "symi", "uneven");
  compare(2, "fixed", "owned");
  config.strategy.name = "fixed";
  compare(3, "symi", "from-owned");
}

TEST(Checkpoint, keeps_the_newest) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 7;
  config.train.checkpoint_every = 2;
  config.train.keep = 2;
  train(options_for(config, folder, "run"));
  const std::vector<Checkpoint> found = list_checkpoints(folder / "run");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].step, 6);
  EXPECT_EQ(found[1].step, 7);
}

TEST(Checkpoint, a_signal_leaves_a_run_that_goes_on) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 8;
  const TrainResult whole = train(options_for(config, folder, "whole"));
  TrainOptions options = options_for(config, folder, "run");
  options.stop = [](const TrainResult& result) {
    if (result.steps == 3) {
      ::raise(SIGTERM);
    }
    return false;
  };
  const std::string message = failure<RunError>(options);
  EXPECT_NE(message.find("interrupted after step 3 of 8"), std::string::npos) << message;
  EXPECT_NE(message.find("--resume"), std::string::npos) << message;
  EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").size(), 3U);
  const TrainResult rest = train(resuming(options, config));
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
}

TEST(Checkpoint, a_killed_run_goes_on_from_its_last_checkpoint) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 8;
  config.train.checkpoint_every = 3;
  const TrainResult whole = train(options_for(config, folder, "whole"));
  TrainOptions options = options_for(config, folder, "run");
  options.stop = [](const TrainResult& result) -> bool {
    if (result.steps == 5) {
      throw RunError("power cut");
    }
    return false;
  };
  EXPECT_NE(failure<RunError>(options).find("power cut"), std::string::npos);
  // What a crash in the middle of a checkpoint leaves.
  fs::create_directories(folder / "run/.step-6.partial");
  std::ofstream(folder / "run/.step-6.partial/model.safetensors") << "half";
  const TrainResult rest = train(resuming(options, config));
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
  EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").size(), 8U);
}

// While it lives, files may not grow beyond `bytes`: as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit old_{};
};

TEST(Checkpoint, a_failing_write_leaves_the_old_checkpoint) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, 2);
  config.train.steps = 8;
  config.train.checkpoint_every = 3;
  config.train.keep = 1;
  const TrainResult whole = train(options_for(config, folder, "whole"));
  TrainOptions options = options_for(config, folder, "run");
  std::unique_ptr<FileSizeLimit> limit;
  options.stop = [&](const TrainResult& result) {
    if (result.steps == 5) {
      limit = std::make_unique<FileSizeLimit>(65536);
    }
    return false;
  };
  const std::string message = failure<RunError>(options);
  limit.reset();
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  const std::vector<Checkpoint> found = list_checkpoints(folder / "run");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].step, 3);
  const TrainResult rest = train(resuming(options, config));
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
}

class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    config_ = tiny_config(folder_, 2);
    config_.train.steps = 2;
    train(stopping_at(options_for(config_, folder_, "run"), 1));
  }
  fs::path file(const std::string& name) const { return fs::path(folder_ / "run/step-1") / name; }
  std::string refused() {
    return failure<InputError>(resuming(options_for(config_, folder_, "run"), config_));
  }
  void expect_refused(const std::string& name, const std::string& why) {
    const std::string message = refused();
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(why), std::string::npos) << message;
  }

  TemporaryFolder folder_;
  Config config_;
};

TEST_F(Damaged, every_file_that_is_cut_off_is_refused) {
  for (const char* name : {"state.json", "model.safetensors", "experts-0-of-2.safetensors",
                           "experts-1-of-2.safetensors"}) {
    const std::string whole = contents(file(name));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 2}) {
      fs::resize_file(file(name), size);
      expect_refused(name, "");
      std::ofstream(file(name), std::ios::binary) << whole;
    }
  }
  EXPECT_EQ(refused(), "");  // whole again
}

TEST_F(Damaged, every_file_with_a_changed_byte_is_refused) {
  for (const char* name : {"state.json", "model.safetensors", "experts-0-of-2.safetensors",
                           "experts-1-of-2.safetensors"}) {
    const std::string whole = contents(file(name));
    for (const std::size_t at : {std::size_t{9}, whole.size() / 2, whole.size() - 3}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      std::ofstream(file(name), std::ios::binary) << changed;
      expect_refused(name, "");
    }
    std::ofstream(file(name), std::ios::binary) << whole;
  }
}

TEST_F(Damaged, a_missing_file_is_named) {
  fs::remove(file("experts-1-of-2.safetensors"));
  expect_refused("experts-1-of-2.safetensors", "No such file");
}

TEST_F(Damaged, files_of_two_steps_do_not_mix) {
  const std::string old = contents(file("experts-0-of-2.safetensors"));
  Config config = config_;
  train(resuming(options_for(config, folder_, "run"), config));
  std::ofstream(fs::path(folder_ / "run/step-2/experts-0-of-2.safetensors"), std::ios::binary)
      << old;
  expect_refused("step-2/experts-0-of-2.safetensors", "its step is 1, not 2");
}

TEST_F(Damaged, another_shape_is_refused_and_named) {
  config_.model.hidden = 64;
  expect_refused("model.hidden", "32");
  config_.model.hidden = 32;
  config_.model.experts = 4;
  config_.parallel.slots = 4;
  expect_refused("model.experts", "8");
}

TEST_F(Damaged, a_checkpoint_of_another_run_is_refused_and_named) {
  Config other = config_;
  other.model.expert_width = 8;
  train(stopping_at(options_for(other, folder_, "other"), 1));
  fs::remove_all(folder_ / "run/step-1");
  fs::rename(folder_ / "other/step-1", folder_ / "run/step-1");
  expect_refused("step-1", "model.expert_width = 8");
}

}  // namespace
}  // namespace lrmoe::train
