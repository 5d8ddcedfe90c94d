#include "cli/clusters.h"

#include <algorithm>
#include <charconv>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/base/size.h"
#include "lrmoe/model/hf_config.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::cli {
namespace {

/// Sets a key of `[lrmoe]` as the option of its name says.
void apply(train::Config& config, const std::string& key, const std::string& text) {
  if (text.empty()) {
    return;
  }
  const train::Field& field = *train::find_field("lrmoe", key);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool numeric = error == std::errc() && end == text.data() + text.size();
  const train::Value value = numeric ? train::Value(number) : train::Value(text);
  if (!field.set(config, value)) {
    throw InputError("--" + key + " " + one_line(text, 80) + " will not do; it takes " +
                     field.expected);
  }
}

int parse_count(const std::string& spec, const std::string& key, const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > 65536) {
    throw InputError("strategy " + quote(spec) + ": " + key + " = " + one_line(text, 80) +
                     " will not do; it takes a whole number from 1 to 65536");
  }
  return count;
}

cost::Shape shape_of(const std::string& name, const model::ModelConfig& m, std::int64_t bytes) {
  return {name,      m.hidden, m.expert_width,
          m.experts, m.top_k,  m.layers - static_cast<int>(m.dense_layers.size()),
          bytes};
}

}  // namespace

void add_selection_options(CLI::App& command, SelectionArguments& arguments) {
  command
      .add_option("--ratio", arguments.ratio,
                  "Share of the pairs that the backward pass keeps (default: 0.25)")
      ->type_name("RHO");
  command.add_option("--mode", arguments.mode, "sampled (default) or top")->type_name("MODE");
  command
      .add_option("--activations", arguments.activations,
                  "keep, recompute or quota, of every strategy (default: recompute where pairs are "
                  "left out, else keep)")
      ->type_name("MODE");
}

train::Config base_config(const SelectionArguments& arguments, const train::Config& start) {
  train::Config config = start;
  apply(config, "ratio", arguments.ratio);
  apply(config, "mode", arguments.mode);
  apply(config, "activations", arguments.activations);
  return config;
}

replay::Entry parse_entry(const train::Config& base, const std::string& spec) {
  replay::Entry entry;
  entry.label = spec;
  std::string rest;
  for (const std::string& part : split(spec, ':')) {
    const std::size_t equals = part.find('=');
    const std::string key = trimmed(part.substr(0, equals));
    if (equals != std::string::npos && (key == "slots" || key == "chunks")) {
      const int count = parse_count(spec, key, trimmed(part.substr(equals + 1)));
      (key == "slots" ? entry.slots : entry.chunks) = count;
    } else {
      rest += (rest.empty() ? "" : ":") + part;
    }
  }
  entry.options = train::with_strategy(base, rest).strategy;
  return entry;
}

void add_cluster_options(CLI::App& command, int& ranks, int& slots) {
  command.add_option("--ranks", ranks, "R (default: 8)")
      ->type_name("R")
      ->check(CLI::Range(1, trace::kMostRanks));
  command
      .add_option("--slots", slots,
                  "S, experts that a rank has room for (default: ceil(E / R) + 2)")
      ->type_name("S")
      ->check(CLI::Range(1, 65536));
}

void add_model_option(CLI::App& command, std::string& model, const std::string& otherwise) {
  command
      .add_option(
          "--model", model,
          "Whose dimensions: " + join(cost::shape_names()) +
              ", a training configuration (.toml), or a Hugging Face folder or its config.json "
              "(default: " +
              otherwise + ")")
      ->type_name("NAME");
}

void add_scale_options(CLI::App& command, double& scale, int& chunks, std::int64_t& seed) {
  command.add_option("--scale", scale, "Tokens that each traced token stands for (default: 1)")
      ->type_name("W");
  command
      .add_option("--chunks", chunks, "Parts of the tokens in which both passes run (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command.add_option("--seed", seed, "Of the selection (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
}

std::int64_t parse_budget(const std::string& text) {
  const std::int64_t bytes = parse_size(text, "--memory");
  if (bytes == 0) {
    throw InputError("--memory must be above 0; leave it out for no budget");
  }
  return bytes;
}

void check_scale(double scale) {
  if (!(scale > 0) || scale > 1e6) {
    throw InputError("--scale " + print_number(scale) +
                     " will not do; it takes a number above 0 and at most 1000000");
  }
}

cost::Shape own_shape(const trace::Info& info) {
  return {"own", info.hidden, info.expert_width, info.experts, info.top_k, info.layers, 2};
}

cost::Shape find_model(const std::string& name, const cost::Shape& own) {
  if (name.ends_with(".toml")) {
    const train::Config config = train::load_config(name, {});
    return shape_of(name, config.model, train::element_bytes(config.train.expert()));
  }
  if (name.ends_with(".json")) {
    const model::HfConfig hf = model::parse_hf_config(read_text(name), one_line(name));
    return shape_of(name, hf.model, hf.dtype == "float32" ? 4 : 2);
  }
  if (model::is_hf_folder(name)) {
    const model::HfConfig hf = model::read_hf_config(name);
    return shape_of(name, hf.model, hf.dtype == "float32" ? 4 : 2);
  }
  std::vector<std::string> names = cost::shape_names();
  if (own.experts == 0) {
    std::erase(names, "own");
  }
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw InputError("--model " + one_line(name) + ": there is no such model" +
                     suggestion(name, names) +
                     "; or name a training configuration (.toml), or a Hugging Face folder or "
                     "its config.json");
  }
  return cost::find_shape(name, own);
}

cost::Profile find_profile_option(const std::string& name) {
  const std::vector<std::string> names = cost::profile_names();
  if (!cost::is_profile_file(name) && std::find(names.begin(), names.end(), name) == names.end()) {
    throw InputError("--profile " + one_line(name) + ": there is no such profile" +
                     suggestion(name, names) + "; or name a TOML file with one (NAME.toml)");
  }
  return cost::find_profile(name);
}

replay::Placing parse_placing(const std::string& text, int steps) {
  if (text.empty()) {
    return steps > 1 ? replay::Placing::next_step : replay::Placing::same_step;
  }
  if (text == "next-step") {
    return replay::Placing::next_step;
  }
  if (text == "same-step") {
    return replay::Placing::same_step;
  }
  throw InputError("--placement " + one_line(text, 80) +
                   " will not do; it takes next-step or same-step");
}

}  // namespace lrmoe::cli
