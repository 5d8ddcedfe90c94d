#include "lrmoe/train/batch.h"

#include "lrmoe/base/error.h"

namespace lrmoe::train {

Batch make_batch(const Data& data, std::span<const std::int64_t> places, std::int64_t length) {
  const auto rows = static_cast<std::int64_t>(places.size());
  Batch batch;
  batch.tokens = at::zeros({rows, length}, at::kLong);
  batch.targets = at::full({rows, length}, kNoTarget, at::kLong);
  auto* tokens = batch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t place : places) {
    const Sequence sequence = data.read(place);
    const std::size_t inputs = sequence.tokens.size() - 1;
    LRMOE_ASSERT(static_cast<std::int64_t>(inputs) <= length, "a sequence longer than its batch");
    for (std::size_t i = 0; i < inputs; ++i) {
      tokens[i] = sequence.tokens[i];
      targets[i] = sequence.trained[i + 1] != 0 ? sequence.tokens[i + 1] : kNoTarget;
    }
    tokens += length;
    targets += length;
  }
  return batch;
}

}  // namespace lrmoe::train
