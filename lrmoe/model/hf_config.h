// Hugging Face's config.json of the families that this program knows: Qwen3-MoE
// (qwen3_moe), GLM-4.5 (glm4_moe), OLMoE (olmoe) and Mixtral (mixtral). Free of torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/model/config.h"

namespace lrmoe::model {

struct HfConfig {
  /// `sequence` is the longest that the model was made for (`positions` too);
  /// lower it to what is used.
  ModelConfig model;
  std::string dtype = "float32";     // of the weights: "float32", "bfloat16", "float16"
  double aux_loss = 0;               // router_aux_loss_coef
  bool uses_aux_loss = false;        // output_router_logits: Transformers adds it to the loss
  int mtp_layers = 0;                // layers for multi-token prediction; not trained here
  std::vector<std::string> notices;  // what was not taken into account, a line each
};

/// The model types by their names in config.json.
std::vector<std::string> hf_families();
std::string family_name(Family family);

/// Reads FOLDER/config.json. Keys that would change the model's function and that
/// this program does not compute are refused: one InputError that names the file,
/// the key and its value, and what is possible. Keys that change nothing are passed
/// over, unknown ones leave a notice (Transformers does not look at them either).
HfConfig read_hf_config(const std::filesystem::path& folder);

/// The same from text, `name` for messages. With `refused` nothing is thrown for
/// what cannot be computed: every reason is added to it, one line each (of a text
/// that is no configuration at all an InputError is thrown still).
HfConfig parse_hf_config(std::string_view text, const std::string& name,
                         std::vector<std::string>* refused = nullptr);

/// Whether the folder holds a model in Hugging Face's layout: a config.json.
bool is_hf_folder(const std::filesystem::path& folder);

}  // namespace lrmoe::model
