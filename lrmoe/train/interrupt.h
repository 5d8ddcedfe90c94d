// SIGINT and SIGTERM while training: the run ends after the step it is in.
#pragma once

namespace lrmoe::train {

/// While it lives, the two signals are noted instead of ending the process; a
/// second one of them ends it at once. Only one may live at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that came, or 0.
  static int signal();
};

}  // namespace lrmoe::train
