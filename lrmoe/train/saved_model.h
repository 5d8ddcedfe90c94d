// What a user names as a trained model: a run folder, a checkpoint, or a Hugging Face
// folder.
#pragma once

#include <filesystem>
#include <optional>

#include "lrmoe/train/config.h"
#include "lrmoe/train/run_folder.h"

namespace lrmoe::train {

/// The checkpoint that the folder is or the newest that it holds; nothing for a Hugging
/// Face folder. InputError for any other.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& folder);

/// The checkpoint's own configuration, with every expert once and no strategy that would
/// need more.
Config config_of(const Checkpoint& checkpoint, int ranks);

}  // namespace lrmoe::train
