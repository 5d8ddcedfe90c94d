#include "lrmoe/train/config_freeze.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::train {
namespace {

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_names(const std::vector<std::string>& names, const std::vector<std::string>& parts,
                 const std::string& where, const Config& config) {
  for (const std::string& name : names) {
    if (holds(parts, name)) {
      continue;
    }
    if (name == "head" && config.model.tied_embeddings) {
      throw InputError(where + ": this model's head is its embedding; name 'embedding'");
    }
    throw InputError(where + ": this model has no part " + quote(name) +
                     "; there are: " + join(parts));
  }
}

}  // namespace

std::vector<std::string> part_names(const model::ModelConfig& model) {
  const auto dense = static_cast<int>(model.dense_layers.size());
  std::vector<std::string> parts = {"embedding", "attention", "norms"};
  if (dense < model.layers) {
    parts.insert(parts.end(), {"router", "experts"});
    if (model.shared_experts > 0) {
      parts.emplace_back("shared");
    }
  }
  if (dense > 0) {
    parts.emplace_back("dense");
  }
  if (!model.tied_embeddings) {
    parts.emplace_back("head");
  }
  return parts;
}

std::string part_of(std::string_view parameter) {
  if (parameter.ends_with("norm")) {
    return "norms";
  }
  for (const auto& [piece, part] :
       {std::pair(".attention.", "attention"), std::pair(".router", "router"),
        std::pair(".shared.", "shared"), std::pair(".mlp.", "dense")}) {
    if (parameter.find(piece) != std::string_view::npos) {
      return part;
    }
  }
  return std::string(parameter);  // embedding, head
}

bool trains(const Config& config, std::string_view part) {
  return config.train.train_only.empty() ? !holds(config.train.freeze, part)
                                         : holds(config.train.train_only, part);
}

void check_freeze(const Config& config, const std::string& where) {
  const TrainConfig& train = config.train;
  if (!train.freeze.empty() && !train.train_only.empty()) {
    throw InputError(where +
                     ": train.freeze and train.train_only say the same in two ways; give "
                     "one of them");
  }
  const std::vector<std::string> parts = part_names(config.model);
  check_names(train.freeze, parts, where + ": train.freeze", config);
  check_names(train.train_only, parts, where + ": train.train_only", config);
  if (std::none_of(parts.begin(), parts.end(),
                   [&](const std::string& part) { return trains(config, part); })) {
    throw InputError(where +
                     ": train.freeze leaves nothing to train; leave one out of: " + join(parts));
  }
}

}  // namespace lrmoe::train
