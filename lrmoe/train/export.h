// Writes a model as a Hugging Face folder: what `lrmoe export` does. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lrmoe::train {

struct ExportOptions {
  /// A run folder that began from a Hugging Face folder (its newest checkpoint is taken),
  /// a checkpoint of it, or a Hugging Face folder.
  std::filesystem::path model;
  std::filesystem::path target;  // a folder that is not there yet
  std::uint64_t shard_bytes = 5'000'000'000;
  int ranks = 1;
};

struct ExportResult {
  std::vector<std::string> notices;
};

/// The folder that appears, whole or not at all, loads in Transformers with the same
/// weights, each rounded once to the dtype that it had in the run's first folder (of a
/// folder itself: bit for bit); config.json, tokenizer and other
/// files are copied. InputError of one line for what is no such folder or damaged.
ExportResult export_model(const ExportOptions& options);

}  // namespace lrmoe::train
