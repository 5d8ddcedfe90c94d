// Small training runs for tests: a text, a tiny model, temporary folders.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "lrmoe/base/hash.h"
#include "lrmoe/train/trainer.h"

namespace lrmoe::train::testing_runs {

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("lrmoe-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// English-like sentences from a fixed vocabulary, chosen by a hash.
inline std::string sentences(std::size_t bytes) {
  static const char* const subjects[] = {"the router",      "an expert",  "a token",
                                         "the old planner", "every rank", "one of the ranks"};
  static const char* const verbs[] = {"sends", "keeps", "waits for", "counts", "forgets", "moves"};
  static const char* const objects[] = {"its gradient", "the weights", "a replica",
                                        "the batch",    "two pairs",   "nothing at all"};
  static const char* const ends[] = {
      ".", ", and then rests.", " before the next step.", "; nobody waits.", " again.", "!"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    const auto pick = [&](std::uint64_t part) { return hash({i, part}) % 6; };
    text += std::string(subjects[pick(0)]) + " " + verbs[pick(1)] + " " + objects[pick(2)] +
            ends[pick(3)] + (pick(4) == 0 ? "\n" : " ");
  }
  return text;
}

/// 8 experts, top-2, 2 layers, 20 steps of 16 sequences of 16 tokens. The text is
/// written into `folder`.
inline Config tiny_config(const TemporaryFolder& folder, int ranks = 1) {
  const std::string path = folder / "text.txt";
  if (!std::filesystem::exists(path)) {
    std::ofstream(path) << sentences(60000);
  }
  Config config;
  config.data.path = path;
  config.data.validation_fraction = 0.1;
  config.model.layers = 2;
  config.model.hidden = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.experts = 8;
  config.model.top_k = 2;
  config.model.expert_width = 24;
  config.model.shared_experts = 1;
  config.model.sequence = 16;
  config.train.steps = 20;
  config.train.tokens_per_step = 256;
  config.train.warmup = 4;
  config.train.evaluate_every = 10;
  config.train.evaluate_tokens = 512;
  config.parallel.ranks = ranks;
  config.parallel.slots = (8 + ranks - 1) / ranks + 1;
  return config;
}

/// Trains into `folder`/`name`.
inline TrainOptions options_for(const Config& config, const TemporaryFolder& folder,
                                const std::string& name) {
  TrainOptions options;
  options.config = config;
  options.run_folder = folder / name;
  options.quiet = true;
  return options;
}

/// A model on which a selection's price shows within seconds; the text is the caller's.
inline Config small_config() {
  Config config;
  config.model.layers = 3;
  config.model.hidden = 64;
  config.model.heads = 4;
  config.model.kv_heads = 4;
  config.model.experts = 16;
  config.model.top_k = 2;
  config.model.expert_width = 32;
  config.model.sequence = 64;
  config.train.tokens_per_step = 1024;
  config.train.warmup = 10;
  config.train.evaluate_every = 0;
  config.train.evaluate_tokens = 1024;
  return config;
}

}  // namespace lrmoe::train::testing_runs
