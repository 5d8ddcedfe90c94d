// A step's seconds by the clock of the configuration (docs/clock.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lrmoe/cost/clock.h"
#include "lrmoe/cost/rest.h"
#include "lrmoe/train/config.h"
#include "lrmoe/train/metrics.h"
#include "lrmoe/train/step_work.h"

namespace lrmoe::train {

class StepClock {
 public:
  explicit StepClock(const Config& config);

  /// With a virtual clock: moves the wall seconds of `metrics` to its `measured` and
  /// puts the priced ones in their place. Without one it changes nothing.
  void price(GatheredWork work, std::vector<cost::OptimizerWork> optimizer,
             StepMetrics& metrics) const;

 private:
  double rest_seconds(const GatheredWork& work, cost::RestWork rest) const;

  std::string name_;
  std::optional<cost::ClockOptions> options_;
  cost::Rest rest_;
  cost::RestWork rest_work_;
};

}  // namespace lrmoe::train
