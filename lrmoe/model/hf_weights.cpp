#include "lrmoe/model/hf_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/mapped_file.h"
#include "lrmoe/base/names.h"

namespace lrmoe::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kElementsPerCopy = 1 << 22;

std::string print_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<at::ScalarType> scalar_type(std::string_view dtype) {
  if (dtype == "F32") {
    return at::kFloat;
  }
  if (dtype == "BF16") {
    return at::kBFloat16;
  }
  if (dtype == "F16") {
    return at::kHalf;
  }
  return {};
}

std::int64_t elements(const HfTensor& tensor) {
  std::int64_t product = 1;
  for (const std::int64_t extent : tensor.shape) {
    product *= extent;
  }
  return product;
}

// Names of tensors and the files they are in.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string where = quote(path.string());
  std::map<std::string, std::string> map;
  try {
    map = nlohmann::json::parse(read_text(path)).at("weight_map").get<decltype(map)>();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(where + ": no index of safetensors files (JSON with a weight_map of names " +
                     "to files): " + one_line(error.what()));
  }
  for (const auto& [name, file] : map) {
    if (file.empty() || file != fs::path(file).filename().string() || file == "..") {
      throw InputError(where + ": tensor " + quote(name) + " is said to be in " + quote(file) +
                       ", which is no file name in this folder");
    }
  }
  return map;
}

}  // namespace

HfWeights::HfWeights(const fs::path& folder, const HfConfig& config) : config_(config) {
  open(folder);
  check_names();
}

void HfWeights::open(const fs::path& folder) {
  if (fs::exists(folder / kSingle)) {
    where_ = quote((folder / kSingle).string());
    open_file(folder / kSingle);
    return;
  }
  const fs::path index = folder / kIndex;
  if (!fs::exists(index)) {
    throw InputError(quote(folder.string()) + " has neither " + kSingle + " nor " + kIndex +
                     "; weights in another format must be saved as safetensors first (load them " +
                     "in Transformers and call save_pretrained)");
  }
  where_ = quote(index.string());
  const std::map<std::string, std::string> map = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) {
    names.insert(file);
  }
  for (const std::string& name : names) {
    open_file(folder / name);
  }
  check_index(index, map);
}

void HfWeights::open_file(const fs::path& path) {
  readers_.push_back(std::make_unique<safetensors::Reader>(path));
  const safetensors::Reader& reader = *readers_.back();
  const std::size_t file = files_.size();
  files_.push_back({path, fs::file_size(path), reader.tensors().size()});
  for (const safetensors::Tensor& tensor : reader.tensors()) {
    const auto [place, fresh] = tensors_.insert({tensor.name, {&tensor, file}});
    if (!fresh) {
      throw InputError(reader.name() + ": tensor " + quote(tensor.name) + " is in " +
                       readers_[place->second.file]->name() + " too; it must be there once");
    }
  }
}

void HfWeights::check_index(const fs::path& index,
                            const std::map<std::string, std::string>& map) const {
  for (const auto& [name, file] : map) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || files_[found->second.file].path.filename() != file) {
      throw InputError(quote((index.parent_path() / file).string()) + ": there is no tensor " +
                       quote(name) + ", which " + quote(index.string()) + " says is there");
    }
  }
  for (const auto& [name, place] : tensors_) {
    if (!map.contains(name)) {
      throw InputError(readers_[place.file]->name() + ": tensor " + quote(name) +
                       " is not in the index " + quote(index.string()));
    }
  }
}

const safetensors::Tensor& HfWeights::find(const HfTensor& wanted) const {
  const auto found = tensors_.find(wanted.name);
  if (found == tensors_.end()) {
    throw InputError(where_ + ": there is no tensor " + quote(wanted.name) + ", " +
                     print_shape(wanted.shape) + " by config.json");
  }
  const safetensors::Tensor& tensor = *found->second.tensor;
  const std::string where =
      readers_[found->second.file]->name() + ": tensor " + quote(tensor.name) + " ";
  if (tensor.shape != wanted.shape) {
    throw InputError(where + "is " + print_shape(tensor.shape) + "; by config.json it is " +
                     print_shape(wanted.shape));
  }
  if (!scalar_type(tensor.dtype)) {
    throw InputError(where + "is of dtype " + tensor.dtype + "; weights can be F32, BF16 or F16");
  }
  return tensor;
}

void HfWeights::check_names() {
  const ModelConfig& m = config_.model;
  std::set<std::string> left;
  for (const auto& [name, place] : tensors_) {
    left.insert(name);
  }
  const auto take = [&](const std::vector<HfTensor>& tensors) {
    for (const HfTensor& tensor : tensors) {
      find(tensor);
      left.erase(tensor.name);
    }
  };
  for (const HfParameter& parameter : hf_parameters(m)) {
    take(parameter.parts);
  }
  for (int layer = 0; layer < m.layers; ++layer) {
    const std::vector<HfTensor> fused = hf_fused_experts(m, layer);
    fused_.push_back(tensors_.contains(fused.front().name));
    if (!m.is_moe_layer(layer)) {
      continue;
    }
    if (fused_.back()) {
      take(fused);
      continue;
    }
    for (int e = 0; e < m.experts; ++e) {
      take(hf_expert(m, layer, e));
    }
  }
  check_left(std::move(left));
}

void HfWeights::check_left(std::set<std::string> left) {
  const ModelConfig& m = config_.model;
  for (const std::string& name : left) {
    const Place& place = tensors_.at(name);
    const std::string where = readers_[place.file]->name() + ": tensor " + quote(name) + " ";
    bool known = place.tensor->bytes.empty() || name.ends_with("rotary_emb.inv_freq");
    for (int i = 0; i < config_.mtp_layers; ++i) {
      known = known || name.starts_with("model.layers." + std::to_string(m.layers + i) + ".");
    }
    if (name == "lm_head.weight" && m.tied_embeddings) {
      const auto& embedding = *tensors_.at("model.embed_tokens.weight").tensor;
      known = std::ranges::equal(embedding.bytes, place.tensor->bytes);
      if (!known) {
        throw InputError(where + "is not equal to model.embed_tokens.weight, though config.json " +
                         "has tie_word_embeddings = true");
      }
    }
    if (!known) {
      throw InputError(where + "is not part of this " + family_name(m.family) +
                       " model as config.json describes it");
    }
    unused_.push_back(*place.tensor);
  }
}

HfWeights::Source HfWeights::source(const std::vector<HfTensor>& parts) const {
  Source out;
  for (const HfTensor& part : parts) {
    out.push_back({&find(part), 0, elements(part)});
  }
  return out;
}

HfWeights::Source HfWeights::expert_source(int layer, int expert) const {
  if (!fused_[static_cast<std::size_t>(layer)]) {
    return source(hf_expert(config_.model, layer, expert));
  }
  Source out = source(hf_fused_experts(config_.model, layer));
  for (Piece& piece : out) {
    piece.count /= config_.model.experts;
    piece.offset = piece.count * expert;
  }
  return out;
}

void HfWeights::read(const Source& source, std::int64_t begin, std::int64_t end,
                     const at::Tensor& target) const {
  LRMOE_ASSERT(target.is_contiguous() && target.numel() == end - begin,
               "the weights do not fit their place");
  const at::NoGradGuard no_grad;
  const at::Tensor flat = target.detach().view({-1});
  std::int64_t base = 0;  // of the piece, in the source
  for (const Piece& piece : source) {
    const std::int64_t first = std::max(begin, base);
    const std::int64_t last = std::min(end, base + piece.count);
    const std::size_t size = safetensors::size_of(piece.tensor->dtype);
    for (std::int64_t at = first; at < last; at += kElementsPerCopy) {
      const std::int64_t count = std::min(kElementsPerCopy, last - at);
      const auto bytes =
          piece.tensor->bytes.subspan(static_cast<std::size_t>(piece.offset + at - base) * size,
                                      static_cast<std::size_t>(count) * size);
      // The bytes in the file need not be aligned.
      const at::Tensor copy = at::empty({count}, *scalar_type(piece.tensor->dtype));
      std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
      flat.narrow(0, at - begin, count).copy_(copy);
      forget(bytes);
    }
    base += piece.count;
  }
  LRMOE_ASSERT(end <= base, "the weights are shorter than their place");
}

void HfWeights::load_dense(Transformer& model) const {
  std::map<std::string, at::Tensor> targets;
  for (const Parameter& parameter : model.parameters()) {
    targets[parameter.name] = parameter.value;
  }
  for (std::size_t i = 0; i < model.moe_layers().size(); ++i) {
    targets["layers." + std::to_string(model.layer_of()[i]) + ".router_bias"] =
        model.moe_layers()[i]->router_bias;
  }
  for (const HfParameter& parameter : hf_parameters(config_.model)) {
    const auto target = targets.find(parameter.name);
    LRMOE_ASSERT(target != targets.end(), "the model has no parameter " + parameter.name);
    read(source(parameter.parts), 0, target->second.numel(), target->second);
    targets.erase(target);
  }
  for (const auto& [name, target] : targets) {
    LRMOE_ASSERT(!target.defined(), "the files have no parameter " + name);
  }
}

void HfWeights::load_slots(Transformer& model) const {
  const ModelConfig& m = config_.model;
  const std::int64_t split = std::int64_t{2} * m.hidden * m.expert_width;
  for (std::size_t i = 0; i < model.moe_layers().size(); ++i) {
    moe::ExpertSlots& slots = model.moe_layers()[i]->slots();
    for (const int slot : slots.instances(slots.rank)) {
      const Source from = expert_source(model.layer_of()[i], slots.expert(slot));
      read(from, 0, split, slots.gate_up.detach().select(0, slot));
      read(from, split, split / 2 * 3, slots.down.detach().select(0, slot));
    }
  }
}

at::Tensor HfWeights::expert(int layer, int expert, std::int64_t begin, std::int64_t end) const {
  at::Tensor out = at::empty({end - begin}, at::kFloat);
  read(expert_source(layer, expert), begin, end, out);
  return out;
}

std::string HfWeights::dtype(const std::string& name, const std::string& otherwise) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? otherwise : found->second.tensor->dtype;
}

bool HfWeights::all_experts_are(const std::string& dtype) const {
  const ModelConfig& m = config_.model;
  for (int layer = 0; layer < m.layers; ++layer) {
    for (int e = 0; m.is_moe_layer(layer) && e < m.experts; ++e) {
      for (const Piece& piece : expert_source(layer, e)) {
        if (piece.tensor->dtype != dtype) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace lrmoe::model
