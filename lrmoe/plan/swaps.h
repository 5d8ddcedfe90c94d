// Candidate swaps of pass "near", best first, without sorting what nobody asks for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lrmoe::plan {

/// The experts in two slots, numbered rank * slots + slot, change places.
struct Swap {
  double gain = 0;  // seconds, as far as it can be told without a split
  std::uint32_t a = 0, b = 0;
};

/// By falling gain, equal ones by (rank of a, rank of b, a, b): an order that does not
/// depend on how they came in.
class SwapList {
 public:
  /// No more than these are kept, the best: 1,024 ranks with two slots have fewer.
  static constexpr std::size_t kMost = std::size_t{1} << 21;

  explicit SwapList(int slots, std::size_t most = kMost)
      : slots_(static_cast<std::uint32_t>(slots)), most_(most) {}
  void clear();
  void push(const Swap& swap);
  void finish();  // after the last push
  std::size_t size() const { return swaps_.size(); }

  /// The next in order that fits; null: none that is left does. What fits changes by
  /// swaps that are made, so the rest is not sorted where nothing in it fits. What is
  /// `gone` (an expert has left its rank) is laid aside until it is brought back.
  template <class Fits, class Gone>
  const Swap* next(const Fits& fits, const Gone& gone) {
    for (;;) {
      while (next_ < sorted_) {
        const Swap& swap = swaps_[next_++];
        if (fits(swap)) {
          return &swap;
        }
      }
      const auto rest = swaps_.begin() + static_cast<std::ptrdiff_t>(sorted_);
      const auto left = std::partition(rest, swaps_.end(), [&](const Swap& s) { return !gone(s); });
      aside_.insert(aside_.end(), left, swaps_.end());
      swaps_.erase(left, swaps_.end());
      if (std::none_of(rest, swaps_.end(), fits)) {
        return nullptr;
      }
      sort_more();
    }
  }

  /// What was laid aside, as far as its turn has not passed, may fit again.
  void bring_back();

 private:
  struct Before {
    std::uint32_t slots;
    bool operator()(const Swap& x, const Swap& y) const;
  };
  Before before() const { return {slots_}; }
  void part(std::size_t from, std::size_t count);
  void sort_more();

  std::uint32_t slots_;  // of a rank
  std::size_t most_;
  std::vector<Swap> swaps_, aside_;
  std::size_t next_ = 0;
  std::size_t sorted_ = 0;  // so many stand in order
  bool cut_ = false;        // some were left out
};

}  // namespace lrmoe::plan
