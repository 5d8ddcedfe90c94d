// The shape of the model that is trained. No torch here: the planner, the cost
// model and the command line read it too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace lrmoe::model {

enum class RouterKind : std::uint8_t { softmax, sigmoid };

/// In what precision router logits are computed: fp32 whatever the model's dtype,
/// or in the model's dtype (softmax and gates are fp32 either way).
enum class RouterDtype : std::uint8_t { full, model };

/// Whose conventions a model follows: our byte model's, or those of a family of
/// Hugging Face checkpoints (model/hf_config.h).
enum class Family : std::uint8_t { own, qwen3_moe, glm4_moe, olmoe, mixtral };

/// RMS norm of queries and keys: none, over each head, or over all heads together.
enum class QkNorm : std::uint8_t { none, head, whole };

/// The load loss E sum_e f_e P_e: of each layer, summed over them (Megatron), or
/// one for all layers' tokens together (Transformers' load_balancing_loss_func).
enum class AuxLoss : std::uint8_t { per_layer, transformers };

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
  int groups = 1;             // sigmoid only: experts in so many groups,
  int top_groups = 1;         // of which a token uses the best
  RouterDtype router_dtype = RouterDtype::full;
};

/// A decoder-only transformer over bytes or tokens.
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
  AuxLoss aux_loss = AuxLoss::per_layer;

  // What only checkpoints of other families set.
  Family family = Family::own;
  int positions = 0;   // longest sequence that the model was made for; 0: any
  int head_dim = 0;    // 0: hidden / heads
  int rotary_dim = 0;  // first elements of a head that are rotated; 0: all
  QkNorm qk_norm = QkNorm::none;
  bool attention_bias = false;   // of the query, key and value projections
  bool output_bias = false;      // of the attention's output projection
  bool tied_embeddings = false;  // the head is the embedding
  int padding_token = -1;        // whose embedding has no gradient; -1: none
  int groups = 1;
  int top_groups = 1;
  RouterDtype router_dtype = RouterDtype::full;

  MoeConfig moe() const {
    return {hidden,       experts,   top_k,  expert_width, router,      renormalise,
            routed_scale, bias_rate, groups, top_groups,   router_dtype};
  }
  bool is_moe_layer(int layer) const {
    return std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
  }
  int width_of_head() const { return head_dim > 0 ? head_dim : hidden / heads; }
  int rotated() const { return rotary_dim > 0 ? rotary_dim : width_of_head(); }
  int width_of_dense() const { return dense_width > 0 ? dense_width : top_k * expert_width; }
};

}  // namespace lrmoe::model
