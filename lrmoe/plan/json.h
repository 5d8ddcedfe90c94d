// The plan as JSON (`lrmoe-plan`, version 1).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// `seconds`: wall time that planning took.
nlohmann::ordered_json to_json(const Plan& plan, double seconds);

}  // namespace lrmoe::plan
