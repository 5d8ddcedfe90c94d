// A model's tensors under their Hugging Face names: a folder that Transformers'
// from_pretrained loads, or one file of gradients. Streamed: at most one parameter
// or expert is in memory besides the model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/hf_weights.h"

namespace lrmoe::model {

/// Where the values come from. Both are called on every rank, in the same order; what
/// counts is rank 0's result. An undefined one counts as zeros.
struct HfValues {
  /// A dense parameter by its name in Transformer::parameters(), or "layers.L.router_bias".
  std::function<at::Tensor(const std::string& name)> dense;
  /// An expert's flat parameters [gate_up 2nd | down dn]; i counts the MoE layers.
  std::function<at::Tensor(std::size_t i, int expert)> expert;
};

/// The model's own weights: experts from the ranks' slots. The model outlives them.
HfValues weights_of(const Transformer& model, comm::Communicator& communicator);
/// The gradients that a backward pass left: summed over ranks and instances.
HfValues gradients_of(const Transformer& model, comm::Communicator& communicator);

struct HfSave {
  std::filesystem::path target;  // the new folder
  /// Whose config.json, tokenizer and other files are copied along.
  std::filesystem::path source;
  std::uint64_t shard_bytes = 5'000'000'000;
};

/// Writes the folder: every tensor in the dtype that it has in `original` (the source's
/// weights), tensors that the model does not use as they are there. Collective. It
/// appears whole or not at all; InputError where the target is there already.
void save_hf(const HfSave& save, const HfConfig& config, const HfWeights& original,
             const HfValues& values, comm::Communicator& communicator);

/// One safetensors file with every parameter's value in fp32. Collective.
void write_hf_tensors(const std::filesystem::path& file, const ModelConfig& config,
                      const HfValues& values, comm::Communicator& communicator);

}  // namespace lrmoe::model
