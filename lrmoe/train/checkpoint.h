// Checkpoints. A folder `step-N/` of the run folder holds
//   state.json                    step, configuration, placements, last demand
//   model.safetensors             dense parameters, their moments, router biases,
//                                 score curves
//   experts-R-of-N.safetensors    rank R's shards of the experts: master weights
//                                 and moments, flat, as optim::ShardMap cuts them
// The folder appears whole or not at all. Going on from it gives the bits of a run
// that never stopped; on other ranks, slots or another strategy the shards are cut
// anew and the placement is planned from the last demand.
#pragma once

#include <filesystem>

#include "lrmoe/train/config.h"
#include "lrmoe/train/replica.h"
#include "lrmoe/train/run_folder.h"

namespace lrmoe::train {

/// Collective; every rank writes its own file. Older checkpoints beyond
/// `train.keep` are removed once the new one is whole. When a rank cannot write,
/// all ranks fail, with that rank's message, and older checkpoints stay.
void save_checkpoint(const Replica& replica, const Config& config,
                     const std::filesystem::path& run_folder);

/// Fills the replica. Collective. InputError, before anything is changed, when a
/// file is missing, damaged or of another model; it names the file and what is wrong.
void load_checkpoint(Replica& replica, const Config& config, const Checkpoint& checkpoint);

}  // namespace lrmoe::train
