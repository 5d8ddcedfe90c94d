// The clock that a configuration asks for (docs/clock.md).
#pragma once

#include <optional>
#include <string>

#include "lrmoe/cost/clock.h"
#include "lrmoe/cost/rest.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/train/config.h"

namespace lrmoe::train {

/// "measured" or "virtual:PROFILE".
std::string clock_name(const Config& config);

/// The same with shape and scale where they matter, for people.
std::string clock_words(const Config& config);

/// The virtual cluster's options; none where seconds are measured.
std::optional<cost::ClockOptions> virtual_clock(const Config& config);

/// What beside the MoE layers is priced at the clock's shape.
cost::Rest rest_of_model(const Config& config);

/// Bytes of an element of the experts' weights and of the activations.
std::int64_t element_bytes(Dtype dtype);

/// Ranks in a node of the clock's cluster; 0: all in one, or seconds are measured.
int ranks_per_node(const Config& config);

/// The strategy with what the planner needs to know beside its own settings: what
/// work costs on the clock's cluster, and the memory budget. InputError for a
/// budget that is no size.
plan::StrategyOptions strategy_options(const Config& config);

/// What `plan::memory_terms` needs of the run's own model.
plan::MemoryModel memory_model(const Config& config);

}  // namespace lrmoe::train
