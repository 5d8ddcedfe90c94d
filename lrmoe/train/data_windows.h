// Pieces of one long stream: a training part, and a held-out part at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lrmoe::train {

class Windows {
 public:
  /// `size` tokens. InputError, about `where`, when a part is too short for one piece of
  /// `sequence` inputs and their targets. `unit`: what messages count, such as "bytes".
  Windows(std::size_t size, double validation_fraction, int sequence, const std::string& where,
          const std::string& unit);

  std::size_t length() const { return length_; }  // inputs and the last target
  std::size_t training_size() const { return training_size_; }
  std::size_t held_out_size() const { return size_ - training_size_; }

  /// Where the index-th piece of a step begins: uniform over all places of the training
  /// part that leave room for it.
  std::size_t offset(std::uint64_t seed, std::int64_t step, std::int64_t index) const;

  /// Pieces for about `tokens` held-out tokens, and where the index-th of `count` begins,
  /// counted from the held-out part's beginning: evenly spaced, no two overlap.
  std::int64_t held_out_count(std::int64_t tokens) const;
  std::size_t held_out_offset(std::int64_t index, std::int64_t count) const;

 private:
  std::size_t size_ = 0;
  std::size_t training_size_ = 0;
  std::size_t length_ = 2;
};

}  // namespace lrmoe::train
