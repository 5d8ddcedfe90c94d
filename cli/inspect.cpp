// lrmoe inspect: what a Hugging Face folder holds, and whether this program can use it.
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/model/hf_inspect.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string folder;
  std::string json;
};

using model::Inspection;

// 30,532,122,624.
std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string grouped(std::int64_t value) {
  return grouped(static_cast<std::uint64_t>(value));
}

std::string mebibytes(std::uint64_t bytes) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

std::string to_json(const std::string& folder, const Inspection& found) {
  using Json = nlohmann::ordered_json;
  const model::ModelConfig& m = found.config.model;
  const model::ParameterCounts& n = found.counts;
  Json files = Json::array();
  for (const Inspection::File& file : found.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"tensors", file.tensors}});
  }
  const Json json{
      {"format", "lrmoe-inspect"},
      {"version", 1},
      {"folder", folder},
      {"family", model::family_name(m.family)},
      {"usable", found.refused.empty()},
      {"dtype", found.config.dtype},
      {"layers", m.layers},
      {"dense_layers", m.dense_layers},
      {"hidden", m.hidden},
      {"heads", m.heads},
      {"kv_heads", m.kv_heads},
      {"head_dim", m.head_dim},
      {"rotary_dim", m.rotary_dim},
      {"experts", m.experts},
      {"top_k", m.top_k},
      {"expert_width", m.expert_width},
      {"shared_experts", m.shared_experts},
      {"vocabulary", m.vocabulary},
      {"positions", m.positions},
      {"router", m.router == model::RouterKind::softmax ? "softmax" : "sigmoid"},
      {"router_dtype", m.router_dtype == model::RouterDtype::full ? "float32" : "model"},
      {"routed_scale", m.routed_scale},
      {"parameters",
       {{"total", n.total()},
        {"active", n.active},
        {"experts", n.experts},
        {"expert", n.expert},
        {"embedding", n.embedding},
        {"attention", n.attention},
        {"dense", n.dense},
        {"router", n.router}}},
      {"expert_bytes", found.expert_bytes},
      {"bytes", found.dtypes},
      {"files", files},
      {"notices", found.config.notices},
      {"refused", found.refused}};
  return json.dump(2) + "\n";
}

std::string shape_lines(const model::ModelConfig& m) {
  std::string text = std::to_string(m.layers) + " layers";
  if (!m.dense_layers.empty()) {
    text += " (" + std::to_string(m.dense_layers.size()) + " of them dense, width " +
            std::to_string(m.width_of_dense()) + ")";
  }
  text += ", hidden " + std::to_string(m.hidden) + ", heads " + std::to_string(m.heads) + "/" +
          std::to_string(m.kv_heads) + " of " + std::to_string(m.head_dim) + " (" +
          std::to_string(m.rotary_dim) + " rotated), vocabulary " + std::to_string(m.vocabulary) +
          ", up to " + std::to_string(m.positions) + " tokens\n";
  text += std::to_string(m.experts) + " experts of width " + std::to_string(m.expert_width) + ", " +
          std::to_string(m.top_k) + " a token, " + std::to_string(m.shared_experts) + " shared; " +
          (m.router == model::RouterKind::softmax ? "softmax" : "sigmoid") + " router, logits in " +
          (m.router_dtype == model::RouterDtype::full ? "fp32" : "the model's dtype") + "\n";
  return text;
}

std::string summary(const Inspection& found) {
  const model::ParameterCounts& n = found.counts;
  std::string text = "family " + model::family_name(found.config.model.family) + ", " +
                     found.config.dtype + "\n" + shape_lines(found.config.model);
  if (n.total() > 0) {
    text += "parameters " + grouped(n.total()) + ": active " + grouped(n.active) +
            " a token, experts " + grouped(n.experts) + "\n";
  }
  if (found.expert_bytes > 0) {
    text += "an expert takes " + mebibytes(found.expert_bytes) + "; in training " +
            mebibytes(static_cast<std::uint64_t>(n.expert) * 12) +
            " more for fp32 master weights and moments, split over the ranks\n";
  }
  for (const auto& [part, dtypes] : found.dtypes) {
    text += "  " + part + ":";
    for (const auto& [dtype, bytes] : dtypes) {
      text += " " + dtype + " " + mebibytes(bytes);
    }
    text += "\n";
  }
  for (const Inspection::File& file : found.files) {
    text += "  " + file.name + ": " + grouped(file.bytes) + " bytes, " +
            std::to_string(file.tensors) + " tensors\n";
  }
  for (const std::string& notice : found.config.notices) {
    text += "note: " + one_line(notice, 400) + "\n";
  }
  for (const std::string& reason : found.refused) {
    text += "refused: " + one_line(reason, 400) + "\n";
  }
  return text + (found.refused.empty() ? "can be used\n" : "cannot be used\n");
}

void run(const Arguments& arguments) {
  check_json(arguments.json);
  if (!model::is_hf_folder(arguments.folder)) {
    throw InputError(quote(arguments.folder) +
                     " is no Hugging Face folder: there is no config.json in it");
  }
  const Inspection found = model::inspect_hf(arguments.folder);
  show(arguments.json, summary(found));
  write_json(arguments.json, to_json(arguments.folder, found));
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Tell what a Hugging Face folder holds, and whether this program can use it");
  command->add_option("model", arguments->folder, "A folder with config.json and safetensors")
      ->type_name("MODEL_DIR")
      ->required();
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
