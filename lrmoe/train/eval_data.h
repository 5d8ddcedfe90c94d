// The token ids that an evaluation is given, as sequences that the model can take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lrmoe/model/config.h"
#include "lrmoe/train/batch.h"

namespace lrmoe::train {

struct Sequences {
  std::vector<std::int64_t> ids;
  std::int64_t rows = 0;
  std::int64_t length = 0;
  bool joined = false;  // one long sequence: the rows follow each other, the last may be shorter

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  /// Those with a following token, which is their target.
  std::int64_t scored() const { return tokens() - (joined ? 1 : rows); }
  std::int64_t end_of(std::int64_t row) const { return std::min((row + 1) * length, tokens()); }
};

/// Reads a .npy file. One dimension is cut into pieces of `piece` tokens; rows of two
/// may have as many as `longest`. InputError for what the model cannot take.
Sequences read_sequences(const std::filesystem::path& path, const model::ModelConfig& model,
                         std::int64_t piece, std::int64_t longest);

/// Rows [begin, end), all of one length; a token without a following one has the target
/// -100, which cross_entropy leaves out.
Batch batch_of(const Sequences& sequences, std::int64_t begin, std::int64_t end);

}  // namespace lrmoe::train
