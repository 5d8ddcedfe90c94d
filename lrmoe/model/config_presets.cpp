#include "lrmoe/model/config_presets.h"

namespace lrmoe::model {
namespace {

struct Preset {
  std::string name;
  ModelConfig config;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      // Small enough that a test trains it in seconds.
      {"tiny",
       {.layers = 2,
        .hidden = 32,
        .heads = 2,
        .kv_heads = 2,
        .experts = 8,
        .top_k = 2,
        .expert_width = 32,
        .dense_layers = {},
        .sequence = 64}},
      // The prototype's shape: learns English text in minutes on a CPU.
      {"demo",
       {.layers = 4,
        .hidden = 128,
        .heads = 4,
        .kv_heads = 4,
        .experts = 32,
        .top_k = 4,
        .expert_width = 64,
        .dense_layers = {},
        .sequence = 256}},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    names.push_back(preset.name);
  }
  return names;
}

bool apply_preset(std::string_view name, ModelConfig& config) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) {
      config = preset.config;
      return true;
    }
  }
  return false;
}

}  // namespace lrmoe::model
