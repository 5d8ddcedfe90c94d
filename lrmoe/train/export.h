// Writes a model as a Hugging Face folder: what `lrmoe export` does. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lrmoe::train {

struct ExportOptions {
  std::filesystem::path model;   // a Hugging Face folder
  std::filesystem::path target;  // a folder that is not there yet
  std::uint64_t shard_bytes = 5'000'000'000;
  int ranks = 1;
};

struct ExportResult {
  std::vector<std::string> notices;
};

/// The folder that appears, whole or not at all, loads in Transformers with the same
/// weights bit for bit, each in the dtype that it had; config.json, tokenizer and other
/// files are copied. InputError of one line for what is no such folder or damaged.
ExportResult export_model(const ExportOptions& options);

}  // namespace lrmoe::train
