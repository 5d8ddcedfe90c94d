// What a Hugging Face folder holds, told without loading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lrmoe/model/hf_config.h"

namespace lrmoe::model {

/// Parameters of a model's parts, shared experts among `dense`.
struct ParameterCounts {
  std::int64_t embedding = 0;  // and head
  std::int64_t attention = 0;  // with all norms
  std::int64_t dense = 0;      // dense layers and shared experts
  std::int64_t router = 0;     // biases included
  std::int64_t experts = 0;    // of all layers
  std::int64_t expert = 0;     // one of them
  std::int64_t active = 0;     // used by one token
  std::int64_t total() const { return embedding + attention + dense + router + experts; }
};

ParameterCounts count_parameters(const ModelConfig& config);

struct Inspection {
  HfConfig config;
  ParameterCounts counts;
  std::vector<std::string> refused;  // reasons why the folder cannot be used; empty: none
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::size_t tensors = 0;
  };
  std::vector<File> files;  // of weights
  /// Part ("embedding", "experts", ...) to the bytes that it has in each dtype.
  std::map<std::string, std::map<std::string, std::uint64_t>> dtypes;
  std::uint64_t expert_bytes = 0;  // of one expert as it stands in the files
};

/// InputError where there is no config.json that can be read; everything else that is
/// wrong is in `refused`.
Inspection inspect_hf(const std::filesystem::path& folder);

}  // namespace lrmoe::model
