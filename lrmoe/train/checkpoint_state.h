// state.json of a checkpoint: everything in it that is no tensor. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lrmoe/plan/types.h"

namespace lrmoe::train {

/// The file's name in a checkpoint.
inline constexpr const char* kStateFile = "state.json";

struct CheckpointState {
  std::int64_t step = 0;  // optimizer steps done
  std::string config;     // TOML
  std::string strategy;
  bool owned = false;  // see optim::ShardMap
  plan::Cluster cluster;
  struct Layer {
    plan::Placement placement;  // of the next step
    plan::Counts demand;        // of the last step
  };
  std::vector<Layer> layers;  // the MoE layers, in order
};

void write_state(const CheckpointState& state, const std::filesystem::path& path);

/// InputError that names the file when it is missing, damaged, of another version
/// or holds tables that are no placement or demand.
CheckpointState read_state(const std::filesystem::path& path);

}  // namespace lrmoe::train
