#include "lrmoe/model/hf_inspect.h"

#include <algorithm>
#include <optional>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/model/hf_weights.h"

namespace lrmoe::model {

namespace {

namespace fs = std::filesystem;

enum class Part { embedding, attention, dense, router };

Part part_of(const std::string& name) {
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  if (!name.starts_with("layers.")) {
    return Part::embedding;
  }
  if (has(".router")) {
    return Part::router;
  }
  return has(".attention.") || has(".mlp.norm") ? Part::attention : Part::dense;
}

const char* name_of(Part part) {
  switch (part) {
    case Part::embedding:
      return "embedding and head";
    case Part::attention:
      return "attention and norms";
    case Part::dense:
      return "dense and shared MLPs";
    default:
      return "routers";
  }
}

std::int64_t elements(const std::vector<HfTensor>& tensors) {
  std::int64_t sum = 0;
  for (const HfTensor& tensor : tensors) {
    sum += safetensors::Tensor{tensor.name, "", tensor.shape, {}}.elements();
  }
  return sum;
}

int moe_layers(const ModelConfig& config) {
  return config.layers - static_cast<int>(config.dense_layers.size());
}

// What parts and one expert take in the files.
void add_dtypes(const HfWeights& weights, Inspection& out) {
  const ModelConfig& m = out.config.model;
  const auto add = [&](const std::string& part, const HfTensor& tensor) {
    const std::string dtype = weights.dtype(tensor.name, "");
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(elements({tensor})) * safetensors::size_of(dtype);
    if (!dtype.empty()) {
      out.dtypes[part][dtype] += bytes;
    }
    return bytes;
  };
  for (const HfParameter& parameter : hf_parameters(m)) {
    for (const HfTensor& tensor : parameter.parts) {
      add(name_of(part_of(parameter.name)), tensor);
    }
  }
  std::uint64_t experts = 0;
  for (int layer = 0; layer < m.layers; ++layer) {
    if (!m.is_moe_layer(layer)) {
      continue;
    }
    // Of the two forms that experts may have, one is there.
    for (const HfTensor& tensor : hf_fused_experts(m, layer)) {
      experts += add("experts", tensor);
    }
    for (int e = 0; e < m.experts; ++e) {
      for (const HfTensor& tensor : hf_expert(m, layer, e)) {
        experts += add("experts", tensor);
      }
    }
  }
  out.expert_bytes = experts / static_cast<std::uint64_t>(moe_layers(m) * m.experts);
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& config) {
  ParameterCounts counts;
  for (const HfParameter& parameter : hf_parameters(config)) {
    const std::int64_t count = elements(parameter.parts);
    switch (part_of(parameter.name)) {
      case Part::embedding:
        counts.embedding += count;
        break;
      case Part::attention:
        counts.attention += count;
        break;
      case Part::dense:
        counts.dense += count;
        break;
      case Part::router:
        counts.router += count;
    }
  }
  counts.expert = std::int64_t{3} * config.hidden * config.expert_width;
  const std::int64_t layers = moe_layers(config);
  counts.experts = counts.expert * config.experts * layers;
  counts.active = counts.total() - counts.experts + counts.expert * config.top_k * layers;
  return counts;
}

Inspection inspect_hf(const fs::path& folder) {
  Inspection out;
  const fs::path path = folder / "config.json";
  out.config = parse_hf_config(read_text(path), quote(path.string()), &out.refused);
  if (out.refused.empty()) {
    out.counts = count_parameters(out.config.model);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") {
      out.files.push_back({entry.path().filename().string(), entry.file_size(), 0});
    }
  }
  std::ranges::sort(out.files, {}, &Inspection::File::name);
  if (!out.refused.empty()) {
    return out;
  }
  try {
    const HfWeights weights(folder, out.config);
    for (const HfWeights::File& file : weights.files()) {
      for (Inspection::File& known : out.files) {
        known.tensors = known.name == file.path.filename() ? file.tensors : known.tensors;
      }
    }
    if (!weights.unused().empty()) {
      out.config.notices.push_back(std::to_string(weights.unused().size()) +
                                   " tensors are not used (such as those of layers for "
                                   "multi-token prediction): the first is " +
                                   quote(weights.unused().front().name));
    }
    add_dtypes(weights, out);
  } catch (const InputError& error) {
    out.refused.emplace_back(error.what());
  }
  return out;
}

}  // namespace lrmoe::model
