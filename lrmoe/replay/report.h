// A replay's figures as JSON (`lrmoe-replay`, version 1) and as tables for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lrmoe/replay/replay.h"

namespace lrmoe::replay {

nlohmann::ordered_json to_json(const Report& report);

/// What was replayed, then load, time and bytes, memory: a line per strategy, against
/// `fixed` and `symi` where they took part.
std::string to_text(const Report& report);

/// The memory table alone, with the comparison at equal activations and chunks.
std::string memory_text(const Report& report);

/// The first entry of this strategy; null when there is none. With `like`, one whose
/// plans ran with the activations and chunks of those of `like`, in all layers.
const Result* find_result(const Report& report, std::string_view strategy,
                          const Result* like = nullptr);

}  // namespace lrmoe::replay
