// The virtual cluster's clock: what a step's MoE layers would take on another
// machine, at another model's dimensions. Routing, counts and bytes are those of
// the run; only time is modelled (docs/clock.md). Pure: the same inputs give the
// same seconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/cost/profile.h"
#include "lrmoe/cost/shape.h"
#include "lrmoe/cost/work.h"

namespace lrmoe::cost {

/// The experts' optimizer of one layer and step.
struct OptimizerWork {
  int experts = 0;                                // E
  bool owned = false;                             // experts stay with their owner: nothing is sent
  std::vector<std::int32_t> instances = {};       // [R] used slots, whose gradients are reduced
  std::vector<std::int32_t> next_instances = {};  // [R] used slots that the weights go to
  std::vector<double> cpu_seconds = {};  // [R] measured, collectives left out; may be empty
  std::int64_t score_bytes = 0;          // of the score histograms that all ranks sum; 0: none
  bool trained = true;                   // false: frozen; they only move with their placement
};

/// All ranks' work of one step.
struct StepWork {
  std::vector<std::vector<std::vector<LayerWork>>> layers;  // [layer][micro-batch][rank]
  std::vector<OptimizerWork> optimizer;                     // [layer], or empty: no update
};

struct ClockOptions {
  Profile profile = {};
  Shape shape = {};         // the traced counts are priced at these dimensions
  double scale = 1;         // tokens that each token of the run stands for
  int ranks_per_node = -1;  // -1: the profile's; 0: all ranks in one node
  /// Planning and selection take what they took here (LayerWork's seconds)
  /// instead of what the profile says.
  bool measured_host = false;
};

/// The spans of forward, backward and update follow each other: their sum is the
/// total. What stands below is a part of them.
struct Seconds {
  double forward = 0;
  double backward = 0;
  double update = 0;           // gradient reduction, AdamW, scores, weight delivery
  double exchange = 0;         // within forward and backward: from the last rank's arrival at
                               // each collective to the last rank's leaving
  double weight_exchange = 0;  // within update, likewise
  double scores = 0;           // within update: the all-reduce of the score histograms
  double fetch = 0;       // within forward: weights of a placement planned in the step; nothing
                          // else goes on meanwhile
  double plan = 0;        // within forward; of the rank that takes longest, as the next two
  double statistics = 0;  // within forward
  double select = 0;      // within backward
  double total() const { return forward + backward + update; }
  Seconds& operator+=(const Seconds& other);
};

/// Sent from one rank to another, summed over ranks, at the shape's dimensions.
struct SentBytes {
  double forward = 0;
  double backward = 0;
  double weights = 0;
  double scores = 0;
  SentBytes& operator+=(const SentBytes& other);
};

struct LayerCost {
  Seconds seconds;
  SentBytes bytes;
};

struct StepCost {
  std::vector<LayerCost> layers;
  LayerCost total;
};

/// Prices a step. Micro-batches run one after the other, each forward through
/// the layers and back; then the layers' optimizers. Every rank has a clock of
/// its own, which its work advances and which waits for the others' at each
/// collective. InternalError where the work's tables do not fit together.
StepCost price_step(const StepWork& work, const ClockOptions& options);

/// [layer][micro-batch][rank] from each rank's list of all its micro-batches'
/// works, layer by layer: [rank][layer * micro_batches + micro_batch].
std::vector<std::vector<std::vector<LayerWork>>> by_layer(
    std::span<const std::vector<LayerWork>> ranks, int micro_batches);

/// InputError where the settings cannot go together: scale not above 0, or a
/// profile that measures (`this-machine`) with another shape or scale.
void check_clock(const ClockOptions& options);

}  // namespace lrmoe::cost
