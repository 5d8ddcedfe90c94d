// Named shapes of the byte model, for [model] preset.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/model/config.h"

namespace lrmoe::model {

std::vector<std::string> preset_names();

/// False, and nothing changed, when there is no such preset.
bool apply_preset(std::string_view name, ModelConfig& config);

}  // namespace lrmoe::model
