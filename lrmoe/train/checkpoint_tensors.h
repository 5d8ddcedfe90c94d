// Tensor files of a checkpoint: safetensors with a hash of their contents, so
// that a damaged file is noticed.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lrmoe/base/safetensors.h"

namespace lrmoe::train {

/// A tensor with the name it has in the file. Contiguous, fp32, fp64 or int64.
using NamedTensor = std::pair<std::string, at::Tensor>;

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   safetensors::Metadata metadata);

class TensorFile {
 public:
  /// InputError that names the file when it is missing or damaged, or when its
  /// metadata has another value for a key of `expected`.
  TensorFile(const std::filesystem::path& path, const safetensors::Metadata& expected);

  /// Refuses, with an InputError, a tensor that is missing or of another dtype or shape.
  void check(const NamedTensor& target) const;
  /// Elements [begin, end) of the file's flat tensor to `target`, which holds as many.
  void copy(const std::string& name, std::int64_t begin, std::int64_t end,
            const at::Tensor& target) const;

 private:
  std::string name_;
  safetensors::Reader reader_;
};

}  // namespace lrmoe::train
