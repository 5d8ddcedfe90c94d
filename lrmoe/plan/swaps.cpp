#include "lrmoe/plan/swaps.h"

#include <algorithm>
#include <tuple>

namespace lrmoe::plan {
namespace {

constexpr std::size_t kFirstSorted = 4096;

}  // namespace

inline bool SwapList::Before::operator()(const Swap& x, const Swap& y) const {
  if (x.gain != y.gain) {
    return x.gain > y.gain;
  }
  return std::make_tuple(x.a / slots, x.b / slots, x.a, x.b) <
         std::make_tuple(y.a / slots, y.b / slots, y.a, y.b);
}

/// Puts the best `count` first.
void SwapList::part(std::size_t from, std::size_t count) {
  const auto begin = swaps_.begin() + static_cast<std::ptrdiff_t>(from);
  std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(count), swaps_.end(), before());
}

void SwapList::clear() {
  swaps_.clear();
  aside_.clear();
  next_ = sorted_ = 0;
  cut_ = false;
}

void SwapList::push(const Swap& swap) {
  if (cut_ && before()(swaps_[most_ - 1], swap)) {
    return;  // behind all that were kept
  }
  swaps_.push_back(swap);
  if (swaps_.size() == 2 * most_) {
    finish();
  }
}

void SwapList::finish() {
  if (swaps_.size() > most_) {
    part(0, most_ - 1);  // the last that is kept stands at its place
    swaps_.resize(most_);
    cut_ = true;
  }
}

void SwapList::bring_back() {
  sorted_ = next_;
  for (const Swap& swap : aside_) {
    if (next_ == 0 || before()(swaps_[next_ - 1], swap)) {
      swaps_.push_back(swap);
    }
  }
  aside_.clear();
}

void SwapList::sort_more() {
  const std::size_t count = std::min(std::max(kFirstSorted, sorted_), swaps_.size() - sorted_);
  if (sorted_ + count < swaps_.size()) {
    part(sorted_, count);
  }
  const auto begin = swaps_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::sort(begin, begin + static_cast<std::ptrdiff_t>(count), before());
  sorted_ += count;
}

}  // namespace lrmoe::plan
