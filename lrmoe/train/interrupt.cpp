#include "lrmoe/train/interrupt.h"

#include <signal.h>

#include <atomic>

namespace lrmoe::train {

namespace {

std::atomic<int> noted{0};
static_assert(std::atomic<int>::is_always_lock_free);  // so a signal handler may write it
struct sigaction old_int, old_term;

void note(int number) {
  if (noted.exchange(number) != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  noted = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &old_int);
  ::sigaction(SIGTERM, &action, &old_term);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &old_int, nullptr);
  ::sigaction(SIGTERM, &old_term, nullptr);
}

int InterruptGuard::signal() {
  return noted;
}

}  // namespace lrmoe::train
