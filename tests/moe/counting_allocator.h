// Counts the bytes that tensors made on a thread hold, and the most they ever held.
#pragma once

#include <cstdint>

namespace lrmoe::testing {

/// While it lives, CPU tensors made on its thread are counted, wherever they are freed.
/// The allocator stays in place for the rest of the program, and counts nothing then.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  std::int64_t live() const;
  std::int64_t peak() const;
  /// From now on the peak is that of what comes.
  void restart();
};

}  // namespace lrmoe::testing
