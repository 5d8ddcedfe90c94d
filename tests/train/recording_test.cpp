// What a run records is what its planner saw.
#include "lrmoe/train/recording.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/trace/demand.h"
#include "lrmoe/trace/summary.h"
#include "lrmoe/trace/trace.h"
#include "lrmoe/train/metrics.h"
#include "tests/error_message.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing::message_of;
using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

/// Keeps the demand of every training pass, in the order in which the layers ask.
class Watching : public plan::Strategy {
 public:
  explicit Watching(const plan::StrategyOptions& options) : inner_(plan::make_strategy(options)) {}
  std::string_view name() const override { return inner_->name(); }
  bool owns_experts() const override { return inner_->owns_experts(); }
  const plan::LrmoeOptions* selection() const override { return inner_->selection(); }
  plan::Placement initial(const plan::Cluster& cluster) const override {
    return inner_->initial(cluster);
  }
  plan::Placement place(const plan::Cluster& cluster, const plan::Counts& demand,
                        const plan::Placement& present,
                        const plan::ScoreCurves* curves) const override {
    const std::scoped_lock lock(mutex_);
    placed.push_back(demand);  // of the whole step; every rank asks
    return inner_->place(cluster, demand, present, curves);
  }
  plan::Plan route(const plan::RouteInput& input) const override { return inner_->route(input); }

  mutable std::vector<plan::Counts> placed;

 private:
  std::unique_ptr<const plan::Strategy> inner_;
  mutable std::mutex mutex_;
};

Config recorded_config(const TemporaryFolder& folder, int ranks) {
  Config config = tiny_config(folder, ranks);
  config.train.steps = 4;
  config.train.evaluate_every = 2;  // evaluation is not recorded
  config.train.accumulation = 2;
  config.trace.write = folder / "run.trace";
  return config;
}

TEST(Recording, demand_equals_what_was_planned) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder, 2);
  config.strategy.name = "lrmoe";
  config.trace.scores = true;
  const Watching strategy(config.strategy);
  train(options_for(config, folder, "run"), strategy);

  const trace::Trace trace = trace::Trace::open(config.trace.write);
  EXPECT_EQ(trace.info().steps, 4);
  EXPECT_EQ(trace.info().layers, 2);
  EXPECT_EQ(trace.info().ranks, 2);
  EXPECT_EQ(trace.info().expert_width, 24);
  std::map<std::vector<std::int32_t>, int> planned, recorded;
  for (const plan::Counts& demand : strategy.placed) {
    ++planned[demand.values];
  }
  for (int s = 0; s < 4; ++s) {
    for (int l = 0; l < 2; ++l) {
      recorded[trace::demand(trace, s, l, 2)] += 2;  // both ranks planned it
      const trace::Routing routing = trace.read(s, l);
      EXPECT_EQ(routing.tokens, 256);
      ASSERT_EQ(routing.scores.size(), 512U);
      for (std::size_t i = 0; i < 512; i += 2) {
        EXPECT_NEAR(routing.gates[i] + routing.gates[i + 1], 1, 1e-5);
        EXPECT_GE(routing.scores[i], 0);
      }
      // Rank by rank, and within a rank micro-batch by micro-batch.
      EXPECT_TRUE(std::is_sorted(routing.sources.begin(), routing.sources.end()));
    }
  }
  EXPECT_EQ(recorded, planned);
}

// Fixed ownership's loads follow from the trace alone; metrics.jsonl has them, as the
// fullest rank's over the mean.
TEST(Recording, loads_are_those_of_the_metrics) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder, 4);
  config.strategy.name = "fixed";
  config.trace.steps = 3;
  train(options_for(config, folder, "run"));
  const trace::Trace trace = trace::Trace::open(config.trace.write);
  const auto steps = read_metrics(folder / "run/metrics.jsonl");
  ASSERT_EQ(trace.info().steps, 3);
  ASSERT_EQ(steps.size(), 4U);
  for (int s = 0; s < 3; ++s) {
    for (int l = 0; l < 2; ++l) {
      const auto pairs = trace::pairs_per_expert(trace.read(s, l), 8);
      std::vector<std::int64_t> loads(4, 0);
      for (std::size_t e = 0; e < 8; ++e) {
        loads[e / 2] += pairs[e];
      }
      const double fullest =
          static_cast<double>(*std::max_element(loads.begin(), loads.end())) * 4 / 512;
      // Each micro-batch has its own fullest rank; their sum over the step's mean.
      const double told =
          steps[static_cast<std::size_t>(s)].layers[static_cast<std::size_t>(l)].imbalance_forward;
      EXPECT_GE(told, fullest - 1e-12);
      EXPECT_FALSE(trace.has_scores(s, l));
    }
  }
}

TEST(Recording, one_micro_batch_gives_the_metrics_exactly) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder, 4);
  config.train.accumulation = 1;
  config.strategy.name = "fixed";
  train(options_for(config, folder, "run"));
  const trace::Trace trace = trace::Trace::open(config.trace.write);
  const auto steps = read_metrics(folder / "run/metrics.jsonl");
  for (int l = 0; l < 2; ++l) {
    double mean = 0;
    for (const StepMetrics& step : steps) {
      mean += step.layers[static_cast<std::size_t>(l)].imbalance_forward / 4;
    }
    EXPECT_NEAR(trace::summarise(trace, 4).layers[static_cast<std::size_t>(l)].rank_imbalance, mean,
                1e-9);
  }
}

TEST(Recording, a_resumed_run_goes_on_in_the_file) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder, 2);
  config.train.steps = 6;
  config.trace.write = folder / "whole.trace";
  train(options_for(config, folder, "whole"));

  config.trace.write = folder / "parts.trace";
  config.train.checkpoint_every = 2;
  TrainOptions options = options_for(config, folder, "parts");
  options.stop = [](const TrainResult& result) { return result.steps == 3; };
  train(options);
  std::filesystem::remove_all(folder / "parts/step-3");  // as if it had been killed after step 3
  EXPECT_EQ(trace::Trace::open(config.trace.write).info().steps, 3);
  options.stop = {};
  options.resume = true;
  train(options);
  EXPECT_EQ(read_text(folder / "parts.trace").size(), read_text(folder / "whole.trace").size());
  const trace::Trace whole = trace::Trace::open(folder / "whole.trace");
  const trace::Trace parts = trace::Trace::open(folder / "parts.trace");
  EXPECT_EQ(parts.info(), whole.info());
  for (int s = 0; s < 6; ++s) {
    EXPECT_EQ(parts.read(s, 1), whole.read(s, 1)) << s;
  }
}

TEST(Recording, refuses_before_it_trains) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder, 1);
  write_file(config.trace.write, "something else");
  EXPECT_EQ(message_of<InputError>([&] { train(options_for(config, folder, "run")); }),
            "trace.write = '" + config.trace.write +
                "': it exists already; a new run records to a new file");
  config.trace.write = folder / "none/x";
  EXPECT_EQ(
      message_of<InputError>([&] { train(options_for(config, folder, "run")); }),
      "trace.write = '" + config.trace.write + "': there is no folder '" + (folder / "none") + "'");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_EQ(message_of<InputError>(
                [] { parse_config("[trace]\nwrite = 'x'\nscores = true", "a.toml", {}); }),
            "a.toml: trace.scores = true, but strategy.name = 'fixed' scores no pairs; lrmoe and "
            "symi-sampled do");
}

}  // namespace
}  // namespace lrmoe::train
