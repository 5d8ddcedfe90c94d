// The training text: bytes of a file or a folder, split into a training part and
// a held-out part at the end. Which sequences a step takes depends on (seed, step,
// index) alone, so resuming needs no state and any number of ranks sees the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lrmoe/train/config.h"
#include "lrmoe/train/data_windows.h"

namespace lrmoe::train {

class Text {
 public:
  using Bytes = std::span<const std::uint8_t>;

  /// Reads `data.path`: a file, or a folder's regular files, at any depth, in the
  /// order of their paths. `sequence`: tokens in a sequence. InputError for what
  /// cannot be read, is empty, or is too short for one sequence in either part.
  Text(const DataConfig& data, int sequence);

  /// The same from bytes; `name` stands in for the path in messages.
  Text(std::vector<std::uint8_t> bytes, double validation_fraction, int sequence,
       const std::string& name);

  Bytes training() const { return Bytes(bytes_).first(windows_.training_size()); }
  Bytes held_out() const { return Bytes(bytes_).subspan(windows_.training_size()); }
  Bytes all() const { return bytes_; }
  const Windows& windows() const { return windows_; }
  int sequence() const { return static_cast<int>(length()) - 1; }

  /// Where the index-th sequence of a step begins in training(): uniform over
  /// all places that leave room for it.
  std::size_t offset(std::uint64_t seed, std::int64_t step, std::int64_t index) const {
    return windows_.offset(seed, step, index);
  }

  /// The sequence there: sequence() + 1 bytes, inputs and their targets.
  Bytes batch(std::uint64_t seed, std::int64_t step, std::int64_t index) const {
    return training().subspan(offset(seed, step, index), length());
  }

  /// Held-out sequences for about `tokens` tokens: min(tokens / sequence(), what
  /// there is), 0 when nothing is held out.
  std::int64_t held_out_count(std::int64_t tokens) const { return windows_.held_out_count(tokens); }

  /// Sequence `index` of `count`: evenly spaced, no two overlap. sequence() + 1 bytes.
  Bytes held_out_sequence(std::int64_t index, std::int64_t count) const {
    return held_out().subspan(windows_.held_out_offset(index, count), length());
  }

 private:
  std::size_t length() const { return windows_.length(); }

  std::vector<std::uint8_t> bytes_;
  Windows windows_;
};

}  // namespace lrmoe::train
