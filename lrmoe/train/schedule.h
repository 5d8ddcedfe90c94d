// The learning rate of a step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "lrmoe/train/config.h"

namespace lrmoe::train {

/// `step` counts from 0. Linear from learning_rate / warmup, then half a cosine
/// down to final_rate * learning_rate at the last step.
inline double learning_rate(const TrainConfig& config, std::int64_t step) {
  if (step < config.warmup) {
    return config.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(config.warmup);
  }
  const std::int64_t length = std::max<std::int64_t>(1, config.steps - 1 - config.warmup);
  const double part =
      std::min(1.0, static_cast<double>(step - config.warmup) / static_cast<double>(length));
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * part));
  return config.learning_rate * (config.final_rate + (1.0 - config.final_rate) * cosine);
}

}  // namespace lrmoe::train
