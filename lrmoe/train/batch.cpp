#include "lrmoe/train/batch.h"

#include <algorithm>

namespace lrmoe::train {

Batch make_batch(std::int64_t begin, std::int64_t end, int length,
                 const std::function<Text::Bytes(std::int64_t)>& sequence) {
  Batch batch;
  batch.tokens = at::empty({end - begin, length}, at::kLong);
  batch.targets = at::empty({end - begin, length}, at::kLong);
  auto* tokens = batch.tokens.data_ptr<std::int64_t>();
  auto* targets = batch.targets.data_ptr<std::int64_t>();
  for (std::int64_t i = begin; i < end; ++i) {
    const Text::Bytes bytes = sequence(i);
    tokens = std::copy(bytes.begin(), bytes.end() - 1, tokens);
    targets = std::copy(bytes.begin() + 1, bytes.end(), targets);
  }
  return batch;
}

}  // namespace lrmoe::train
