// What a run shows while it goes on: on a terminal one line that is rewritten in
// place, elsewhere (a log file, a pipe) a plain line every few seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "lrmoe/train/metrics.h"

namespace lrmoe::train {

struct ProgressOptions {
  std::int64_t steps = 0;         // of the whole run
  bool terminal = false;          // rewrite one line
  double interval = 5;            // seconds between plain lines
  double refresh = 0.1;           // seconds between rewritings
  std::function<int()> width;     // columns of the terminal, asked at each rewriting
  std::function<double()> clock;  // seconds, monotonic
};

class Progress {
 public:
  Progress(std::ostream& out, ProgressOptions options);

  /// A step is done.
  void update(const StepMetrics& metrics);
  /// A line of its own (a validation loss, a checkpoint).
  void note(const std::string& text);
  /// The last step's line, if it was not shown yet, and the end of the line.
  void finish();

 private:
  std::string line(std::size_t columns) const;
  void show();

  std::ostream& out_;
  ProgressOptions options_;
  StepMetrics last_;
  double started_ = 0;
  double shown_at_ = 0;
  std::int64_t steps_seen_ = 0;  // in this process
  double tokens_ = 0;            // since the line was shown
  double rate_ = 0;              // tokens per second, as shown
  bool pending_ = false;         // last_ is not shown
  std::size_t drawn_ = 0;        // columns of the line on the terminal
};

/// Progress on standard error, with the system's clock and width; a terminal is
/// recognised.
ProgressOptions standard_error_options(std::int64_t steps);

/// "3m12s", "1h05m", "12s".
std::string print_duration(double seconds);

}  // namespace lrmoe::train
