// Which parts of a model a run trains: `train.freeze` or `train.train_only`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/train/config.h"

namespace lrmoe::train {

/// embedding, attention, norms, router, experts, shared, dense (the MLPs of dense
/// layers), head: those that the model has, in this order.
std::vector<std::string> part_names(const model::ModelConfig& model);

/// The part that a dense parameter belongs to, by its name in Transformer::parameters();
/// "layers.L.router_bias" belongs to the router.
std::string part_of(std::string_view parameter);

/// Whether the run trains a part.
bool trains(const Config& config, std::string_view part);

/// InputError, beginning with `where`: a name that the model does not have, both keys at
/// once, or nothing left to train.
void check_freeze(const Config& config, const std::string& where);

}  // namespace lrmoe::train
