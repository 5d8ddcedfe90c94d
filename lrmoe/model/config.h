// The shape of the model that is trained. No torch here: the planner, the cost
// model and the command line read it too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lrmoe::model {

enum class RouterKind : std::uint8_t { softmax, sigmoid };

/// Router and experts of one MoE layer.
struct MoeConfig {
  int hidden = 128;       // d
  int experts = 32;       // E
  int top_k = 4;          // k <= E
  int expert_width = 64;  // n
  RouterKind router = RouterKind::softmax;
  bool renormalise = true;    // gates divided by their sum over the top-k
  double routed_scale = 1.0;  // c: gates are multiplied by it (GLM-4.5: 2.5)
  double bias_rate = 1e-3;    // sigmoid only: step of the bias that evens the load
};

/// A decoder-only transformer over bytes.
struct ModelConfig {
  int vocabulary = 256;
  int layers = 4;
  int hidden = 128;
  int heads = 4;
  int kv_heads = 4;
  int experts = 32;
  int top_k = 4;
  int expert_width = 64;
  int shared_experts = 0;         // always-on experts, one gated MLP of their summed width
  std::vector<int> dense_layers;  // layers with a dense MLP in place of the MoE
  int dense_width = 0;            // its width; 0: top_k * expert_width
  RouterKind router = RouterKind::softmax;
  bool renormalise = true;
  double routed_scale = 1.0;
  double bias_rate = 1e-3;
  int sequence = 256;  // tokens in a training sequence
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  double init_std = 0.02;

  MoeConfig moe() const {
    return {hidden, experts, top_k, expert_width, router, renormalise, routed_scale, bias_rate};
  }
  bool is_moe_layer(int layer) const {
    for (const int dense : dense_layers) {
      if (dense == layer) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace lrmoe::model
