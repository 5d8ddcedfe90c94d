#include "lrmoe/train/trainer.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "lrmoe/base/names.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/train/audit.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/interrupt.h"
#include "lrmoe/train/progress.h"
#include "lrmoe/train/rank_trainer.h"
#include "lrmoe/train/recording.h"

namespace lrmoe::train {

namespace {

// What only rank 0 does: metrics.jsonl, the progress line, the result.
class Recorder {
 public:
  Recorder(const TrainOptions& options, const RunFolder& folder, TrainResult& result)
      : options_(options), metrics_(folder.metrics()), result_(result) {
    if (!options.quiet) {
      progress_.emplace(std::cerr, standard_error_options(options.config.train.steps));
    }
  }

  void record(const StepMetrics& metrics) {
    metrics_.write(metrics);
    result_.steps = metrics.step;
    result_.losses.push_back(metrics.loss);
    result_.moe_seconds += metrics.moe_seconds;
    result_.total_seconds += metrics.seconds;
    result_.dropped_pairs += metrics.moe.dropped_pairs;
    result_.memory_peak_bytes = std::max(result_.memory_peak_bytes, metrics.moe.memory_peak_bytes);
    variance_ += metrics.moe.added_variance;
    for (const LayerNote& note : metrics.notes) {
      tell(note, metrics.step);
    }
    result_.added_variance = variance_ / static_cast<double>(result_.losses.size());
    if (metrics.validation_loss) {
      result_.validations.push_back(
          {metrics.step, *metrics.validation_loss, result_.moe_seconds, result_.total_seconds});
    }
    if (progress_) {
      progress_->update(metrics);
      if (metrics.audit) {
        progress_->note("step " + std::to_string(metrics.step) + ": " + to_text(*metrics.audit));
      }
      if (metrics.validation_loss) {
        char text[64];
        std::snprintf(text, sizeof text, "step %lld: validation loss %.4f",
                      static_cast<long long>(metrics.step), *metrics.validation_loss);
        progress_->note(text);
      }
    }
  }

  void tell(const std::string& note) {
    if (progress_ && !note.empty()) {
      progress_->note(note);
    }
  }

  bool wants_stop() const { return options_.stop && options_.stop(result_); }

  void finish() {
    if (progress_) {
      progress_->finish();
    }
  }

 private:
  // Each layer's first note of a kind; the metrics have them all. What stands before
  // the colon is the kind, the figures behind it change.
  void tell(const LayerNote& note, std::int64_t step) {
    const std::string kind = note.text.substr(0, note.text.find(':'));
    if (progress_ && told_.insert({note.layer, kind}).second) {
      progress_->note("step " + std::to_string(step) + ", layer " + std::to_string(note.layer) +
                      ": " + note.text + "; this is said once per layer");
    }
  }

  const TrainOptions& options_;
  MetricsWriter metrics_;
  TrainResult& result_;
  std::optional<Progress> progress_;
  double variance_ = 0;
  std::set<std::pair<int, std::string>> told_;
};

enum class After : std::int32_t { go_on = 0, stop = 1, interrupted = 2 };

// The gravest of the ranks' wishes, so that all end at the same step.
After agree(After wish, comm::Communicator& communicator) {
  std::array<std::int32_t, 1> value = {static_cast<std::int32_t>(wish)};
  communicator.all_reduce(comm::view(std::span<std::int32_t>(value)), comm::Reduce::max);
  return static_cast<After>(value[0]);
}

bool is_due(std::int64_t every, std::int64_t step) {
  return every > 0 && step % every == 0;
}

// The run of one rank; true when a signal ended it.
bool run_rank(RankTrainer& trainer, Recorder* recorder, const TrainOptions& options,
              const Data& data, comm::Communicator& communicator) {
  const TrainConfig& train = options.config.train;
  const bool can_evaluate = data.held_out_count(train.evaluate_tokens) > 0;
  After after = After::go_on;
  while (trainer.steps_done() < train.steps && after == After::go_on) {
    StepMetrics metrics = trainer.step();
    const bool last = trainer.steps_done() == train.steps;
    if (can_evaluate && (last || is_due(train.evaluate_every, metrics.step))) {
      metrics.validation_loss = trainer.evaluate();
    }
    After wish = After::go_on;
    if (recorder != nullptr) {
      recorder->record(metrics);
      wish = recorder->wants_stop() ? After::stop : After::go_on;
    }
    if (InterruptGuard::signal() != 0 && !last) {
      wish = After::interrupted;
    }
    after = agree(wish, communicator);
    if (last || after != After::go_on || is_due(train.checkpoint_every, metrics.step)) {
      trainer.save(options.run_folder);
    }
  }
  return after == After::interrupted;
}

}  // namespace

TrainResult train(const TrainOptions& options) {
  const auto strategy = plan::make_strategy(strategy_options(options.config));
  return train(options, *strategy);
}

TrainResult train(const TrainOptions& options, const plan::Strategy& strategy) {
  const Config& config = options.config;
  check_recording(config, options.resume);
  const std::unique_ptr<const Data> data =
      open_data(config.data, config.model.sequence, config.model.vocabulary);
  std::optional<model::HfWeights> weights;
  const auto open_weights = [&] {
    if (!config.model_path.empty()) {
      weights.emplace(config.model_path, model::read_hf_config(config.model_path));
    }
  };
  if (!options.resume) {
    open_weights();  // what is wrong with them is said before there is a run folder
  }
  const RunFolder folder = open_run(options.run_folder, config, options.resume);
  if (options.resume && !folder.checkpoint) {
    open_weights();
  }
  at::set_num_threads(1);  // the ranks are the threads; and sums keep their order
  const InterruptGuard guard;
  TrainResult result;
  bool interrupted = false;
  comm::run_ranks(config.parallel.ranks, [&](comm::Communicator& communicator) {
    RankTrainer trainer(config, strategy, *data, communicator, weights ? &*weights : nullptr);
    if (folder.checkpoint) {
      trainer.load(*folder.checkpoint);
    }
    trainer.record();
    communicator.barrier();  // every rank's part was read: now the folder may change
    std::unique_ptr<Recorder> recorder;
    if (communicator.rank() == 0) {
      if (options.resume) {
        continue_run(folder, config);
      }
      result.steps = trainer.steps_done();
      recorder = std::make_unique<Recorder>(options, folder, result);
      recorder->tell(data->note());
    }
    const bool ended = run_rank(trainer, recorder.get(), options, *data, communicator);
    if (recorder) {
      recorder->finish();
      interrupted = ended;
    }
  });
  if (interrupted) {
    throw RunError("interrupted after step " + std::to_string(result.steps) + " of " +
                   std::to_string(config.train.steps) + "; its checkpoint is in " +
                   quote(options.run_folder) + ": the same command with --resume goes on");
  }
  return result;
}

}  // namespace lrmoe::train
