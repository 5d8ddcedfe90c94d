#include "lrmoe/train/eval_data.h"

#include <algorithm>
#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/npy.h"

namespace lrmoe::train {

Sequences read_sequences(const std::filesystem::path& path, const model::ModelConfig& model,
                         std::int64_t piece, std::int64_t longest) {
  const npy::Reader file(path);
  const std::string where = quote(path.string()) + ": ";
  const std::vector<std::int64_t>& shape = file.shape();
  if (shape.size() != 1 && shape.size() != 2) {
    throw InputError(where + "the array has " + std::to_string(shape.size()) +
                     " dimensions; token ids have one (a long sequence) or two (a sequence per "
                     "row)");
  }
  Sequences out;
  out.ids = file.integers();
  out.joined = shape.size() == 1;
  if (out.ids.empty()) {
    throw InputError(where + "the array is empty; it takes two tokens at least");
  }
  if (shape.back() < 2) {
    throw InputError(where +
                     "a sequence of one token has nothing to predict; it takes two at "
                     "least");
  }
  if (!out.joined && shape[1] > longest) {
    throw InputError(where + "rows of " + std::to_string(shape[1]) +
                     " tokens are longer than the model's sequence (" + std::to_string(longest) +
                     "); a one-dimensional array is cut into pieces of that length");
  }
  for (std::size_t i = 0; i < out.ids.size(); ++i) {
    if (out.ids[i] < 0 || out.ids[i] >= model.vocabulary) {
      throw InputError(where + "the token id " + std::to_string(out.ids[i]) + " at position " +
                       std::to_string(i) + " is outside the model's vocabulary (0 to " +
                       std::to_string(model.vocabulary - 1) + ")");
    }
  }
  out.length = out.joined ? std::min(piece, shape[0]) : shape[1];
  out.rows = (static_cast<std::int64_t>(out.ids.size()) + out.length - 1) / out.length;
  return out;
}

// Rows [begin, end), all of one length.
Batch batch_of(const Sequences& sequences, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = begin * sequences.length;
  const std::int64_t count = end > begin ? sequences.end_of(end - 1) - first : 0;
  const auto* ids = sequences.ids.data();
  std::vector<std::int64_t> targets(static_cast<std::size_t>(count), kNoTarget);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t next = first + i + 1;
    const bool follows = sequences.joined ? next < static_cast<std::int64_t>(sequences.ids.size())
                                          : next % sequences.length != 0;
    if (follows) {
      targets[static_cast<std::size_t>(i)] = ids[next];
    }
  }
  const std::int64_t rows = end - begin;
  const std::vector<std::int64_t> shape{rows, rows > 0 ? count / rows : sequences.length};
  return {at::tensor(std::vector<std::int64_t>(ids + first, ids + first + count), at::kLong)
              .view(shape),
          at::tensor(targets, at::kLong).view(shape)};
}

}  // namespace lrmoe::train
