// Even split over an expert's slots, with an optional capacity per slot: how
// `fixed`, `fixed-capacity`, `symi` and `eplb` route.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "lrmoe/plan/strategy.h"

namespace lrmoe::plan {

inline constexpr std::int64_t kNoCapacity = std::numeric_limits<std::int64_t>::max();

/// floor(factor * pairs / parts), the factor read to six decimals so that 1.15
/// means 115/100; kNoCapacity for an infinite factor.
std::int64_t capacity_of(double factor, std::int64_t pairs, std::int64_t parts);

/// InputError unless the factor is above zero (infinity: no capacity).
void check_capacity_factor(std::string_view strategy, double factor);

/// A keep-all plan: an expert's pairs are split evenly over its slots (the first
/// ones take the remainder), each slot takes up to `slot_capacity` of them, the
/// overflow is dropped at the sources in proportion to their pairs. Evaluation
/// drops nothing.
Plan route_evenly(std::string_view strategy, const RouteInput& input, std::int64_t slot_capacity,
                  Activations activations);

/// InternalError unless the tables of `input` fit its cluster.
void check_input(const RouteInput& input);

}  // namespace lrmoe::plan
