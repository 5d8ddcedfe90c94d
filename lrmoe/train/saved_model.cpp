#include "lrmoe/train/saved_model.h"

#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/model/hf_config.h"
#include "lrmoe/train/checkpoint_state.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhatToName =
    "name a Hugging Face folder, a run folder or a checkpoint in it (step-N)";

}  // namespace

std::optional<Checkpoint> find_checkpoint(const fs::path& folder) {
  const std::string where = quote(folder.string());
  if (!fs::is_directory(folder)) {
    throw InputError(where + (fs::exists(folder) ? " is no folder; " : " does not exist; ") +
                     kWhatToName);
  }
  if (fs::exists(folder / kStateFile)) {
    return Checkpoint{read_state(folder / kStateFile).step, folder};
  }
  if (const std::optional<Checkpoint> newest = newest_checkpoint(folder)) {
    return newest;
  }
  if (model::is_hf_folder(folder)) {
    return {};
  }
  throw InputError(where + (fs::exists(folder / "config.toml")
                                ? " is a run folder without a checkpoint; train.checkpoint_every "
                                  "or the end of the run writes one"
                                : " is no run folder, no checkpoint and no Hugging Face folder: " +
                                      std::string("there is no step-N, no state.json and no ") +
                                      "config.json in it"));
}

Config config_of(const Checkpoint& checkpoint, int ranks) {
  const CheckpointState state = read_state(checkpoint.path / kStateFile);
  Config config = parse_config(
      state.config, "the configuration in " + quote((checkpoint.path / kStateFile).string()), {});
  config.parallel.ranks = ranks;
  config.parallel.slots = (config.model.experts + ranks - 1) / ranks;
  config.strategy = plan::StrategyOptions{.name = "fixed"};
  return config;
}

}  // namespace lrmoe::train
