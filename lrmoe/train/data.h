// What a run trains on: sequences of token ids with their targets. Free of torch.
//
//   a text file, or a folder of them   bytes are the tokens
//   .bin                               raw uint16 or uint32 ids (data.dtype), one stream
//   .npy, one dimension                integers, one stream
//   .npy, two dimensions               a sequence per row
//   .jsonl                             a sequence per line: {"tokens": [...]} with
//                                      "prompt": n or "mask": [0, 1, ...]
//
// A stream is cut into pieces of the model's sequence at places drawn anew for every
// step, across the borders of its documents (nothing is masked there). Rows and lines
// are sequences of their own: each is taken once before any is taken twice, in an order
// drawn anew each time. Which sequences a step takes depends on (seed, step, index)
// alone, so resuming needs no state and any number of ranks sees the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lrmoe/train/config.h"

namespace lrmoe::train {

struct Sequence {
  std::vector<std::int64_t> tokens;   // two at least: inputs and, one further on, their targets
  std::vector<std::uint8_t> trained;  // [tokens] 1: its prediction is trained on, never the first
};

class Data {
 public:
  virtual ~Data() = default;

  /// Which sequence a step takes as its index-th.
  struct Turn {
    std::int64_t step = 0;
    std::int64_t index = 0;
    std::int64_t per_step = 1;  // sequences of a step, over all ranks
  };
  virtual std::int64_t pick(std::uint64_t seed, const Turn& turn) const = 0;

  /// Held-out sequences for about `tokens` tokens: min(tokens / sequence, what there
  /// is), 0 when nothing is held out.
  virtual std::int64_t held_out_count(std::int64_t tokens) const = 0;
  /// The index-th of `count` held-out ones: evenly spaced, all different.
  virtual std::int64_t pick_held_out(std::int64_t index, std::int64_t count) const = 0;

  virtual Sequence read(std::int64_t place) const = 0;

  struct Size {
    std::int64_t inputs = 0;   // tokens that go in
    std::int64_t trained = 0;  // of them, those whose prediction is trained on
  };
  virtual Size size(std::int64_t place) const = 0;

  /// Whether there are sequences with tokens that are not trained on, or of several lengths.
  virtual bool masked() const = 0;

  /// What a user should know of the data before training; empty: nothing.
  virtual std::string note() const { return {}; }
};

/// Opens `data.path`. InputError of one line for what cannot be read, is empty or too
/// short, is of mixed kinds, or holds an id outside the vocabulary: the message names
/// the file, the place in it, the id and the vocabulary's size.
std::unique_ptr<const Data> open_data(const DataConfig& data, int sequence, int vocabulary);

}  // namespace lrmoe::train
