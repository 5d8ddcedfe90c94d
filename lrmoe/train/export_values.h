// The weights that a replica trains, for an export: experts from the optimizers' master
// shards, which are whatever the placement is.
#pragma once

#include "lrmoe/model/hf_export.h"
#include "lrmoe/train/replica.h"

namespace lrmoe::train {

/// See model::HfValues; the replica outlives them.
model::HfValues masters_of(const Replica& replica);

}  // namespace lrmoe::train
