// Records the routing of a run: every rank's experts, gates and scores of every step
// and MoE layer, gathered to rank 0 and written as they come (docs/traces.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lrmoe/train/config.h"
#include "lrmoe/train/replica.h"

namespace lrmoe::trace {
class Writer;
struct Routing;
}  // namespace lrmoe::trace

namespace lrmoe::train {

/// Before the run: InputError where a new run would write over a file, or the folder
/// is not there.
void check_recording(const Config& config, bool resume);

class Recording {
 public:
  /// Watches the layers; the replica outlives the recording. Rank 0 opens the file: one
  /// that an earlier part of the run wrote is kept up to the replica's step, and goes on
  /// from there. InputError where it is another run's, or lacks steps.
  Recording(const Config& config, Replica& replica);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// After a step: its micro-batches, one after the other, become the trace's next step.
  /// Collective.
  void end_step();
  /// Has the disk hold what was written.
  void sync();

 private:
  /// One layer's pairs on this rank since the last end_step.
  struct Pairs {
    std::vector<std::int32_t> ids;
    std::vector<float> gates;
    std::vector<float> scores;
  };
  void open(const Config& config);
  trace::Routing gather(const Pairs& mine);

  Replica& replica_;
  int top_k_;
  std::int64_t last_step_;                 // of the run that is recorded
  std::vector<Pairs> layers_;              // [MoE layer]
  std::unique_ptr<trace::Writer> writer_;  // on rank 0
};

}  // namespace lrmoe::train
