// The tensors of a Hugging Face checkpoint, by name and shape, and which of a
// model's parameters they make up. Free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lrmoe/model/config.h"

namespace lrmoe::model {

struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// A parameter and the tensors whose elements, one after the other, are its own
/// (two for a gate_up: the gate's first).
struct HfParameter {
  std::string name;  // as Transformer::parameters() has it, or "layers.L.router_bias"
  std::vector<HfTensor> parts;
};

/// All but the experts. For our own byte model the names are our own.
std::vector<HfParameter> hf_parameters(const ModelConfig& config);

/// Gate, up and down of one expert: its flat parameters [gate_up 2nd | down dn].
std::vector<HfTensor> hf_expert(const ModelConfig& config, int layer, int expert);

/// The same for all experts of a layer in two tensors, as some checkpoints have
/// them: gate_up [E, 2n, d], down [E, d, n].
std::vector<HfTensor> hf_fused_experts(const ModelConfig& config, int layer);

}  // namespace lrmoe::model
