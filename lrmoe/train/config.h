// The configuration of a training run: what a TOML file and `--set` say. Free
// of torch.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lrmoe/model/config.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::train {

/// Of the ids in a .bin file, little-endian.
enum class IdType : std::uint8_t { uint16, uint32 };

struct DataConfig {
  std::string path;  // a file, or a folder of them in the order of their names (train/data.h)
  double validation_fraction = 0.05;  // of the bytes, ids or sequences, at the end; held out
  IdType dtype = IdType::uint16;
};

enum class Dtype : std::uint8_t { float32, bfloat16 };

struct TrainConfig {
  Dtype expert() const { return expert_dtype.value_or(dtype); }
  Dtype dense() const { return dense_dtype.value_or(dtype); }

  std::int64_t steps = 300;
  std::int64_t tokens_per_step = 4096;  // over all ranks and micro-batches
  std::uint64_t seed = 1;
  double learning_rate = 2e-3;
  std::int64_t warmup = 20;  // steps of linear warm-up, then cosine to `final_rate`
  double final_rate = 0.1;   // of learning_rate, at the last step
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip = 1.0;                     // global gradient norm; 0: no clipping
  double aux_loss = 1e-3;                // weight of the load loss
  int accumulation = 1;                  // micro-batches per step
  std::vector<std::string> freeze;       // parts that are not trained (train/config_freeze.h)
  std::vector<std::string> train_only;   // or: those that are; both empty: all
  Dtype dtype = Dtype::float32;          // of working weights and matrix products
  std::optional<Dtype> expert_dtype;     // of the routed experts' and their activations; or dtype
  std::optional<Dtype> dense_dtype;      // of all others; or dtype
  std::int64_t checkpoint_every = 0;     // steps; 0: none but the last
  int keep = 2;                          // checkpoints kept
  std::int64_t evaluate_every = 50;      // steps; 0: at the end only
  std::int64_t evaluate_tokens = 32768;  // of the held-out text, the same ones each time
};

struct ParallelConfig {
  std::string engine = "threads";
  int ranks = 1;
  int slots = 0;  // per rank; 0: ceil(E / R) + 2 where a strategy may use spare slots
};

/// What of `[lrmoe]` concerns the trainer and no plan.
struct LrmoeTrainConfig {
  std::int64_t audit_every = 0;  // steps between audits of the gradients; 0: none
};

/// By which clock the run's seconds are told (train/config_clock.h).
struct ClockConfig {
  std::string profile = "measured";  // or a profile's name or TOML file (cost/profile.h)
  std::string shape = "own";         // one of cost::shape_names()
  double scale = 1;                  // tokens that each token of the run stands for
  int ranks_per_node = -1;           // -1: the profile's; 0: all ranks in one node
};

/// What a rank's MoE layers may take.
struct MemoryConfig {
  std::string budget;  // bytes per rank, "40GiB"; empty: no budget
};

/// What of the routing is recorded (docs/traces.md).
struct TraceConfig {
  std::string write;       // a routing trace; empty: none
  bool scores = false;     // with the pairs' scores, where the strategy scores them
  std::int64_t steps = 0;  // of the run, from its first; 0: all
};

/// The whole configuration. `[strategy]` becomes `strategy`.
struct Config {
  DataConfig data;
  std::string model_path;  // [model] path: a Hugging Face folder to start from; empty: none
  model::ModelConfig model;
  TrainConfig train;
  ParallelConfig parallel;
  plan::StrategyOptions strategy;
  LrmoeTrainConfig lrmoe;
  ClockConfig clock;
  MemoryConfig memory;
  TraceConfig trace;

  /// Slots per rank after `0` is resolved.
  int slots() const;
};

/// Reads a TOML file and applies `section.key=value` settings in order (values
/// in TOML syntax; a bare word is taken as a string). Errors, all InputError of
/// one line that name file, key (and line where known) and what would be right:
/// unreadable file, TOML syntax, unknown section or key (the nearest is
/// suggested), wrong type, value out of range, k > E, R * S < E, tokens that do
/// not divide.
Config load_config(const std::string& path, const std::vector<std::string>& settings);

/// The same from text; `name` stands in for the file's name in messages.
Config parse_config(const std::string& toml, const std::string& name,
                    const std::vector<std::string>& settings);

/// The resolved configuration as TOML; parse_config reads it back unchanged.
std::string to_toml(const Config& config);

/// Parses a strategy as `lrmoe compare` takes it: a name, then its own settings
/// after colons, e.g. "symi:capacity_factor=inf"; the other settings of
/// `config` stay. InputError as above.
Config with_strategy(const Config& config, const std::string& spec);

}  // namespace lrmoe::train
