#include "lrmoe/train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::train {
namespace {

using Json = nlohmann::ordered_json;

// One list of names for both directions: `visit` is called with each field's
// name and member, in the order of the line.
template <class Metrics, class Visit>
void visit_step(Metrics& m, Visit visit) {
  visit("step", m.step);
  visit("loss", m.loss);
  visit("aux_loss", m.aux_loss);
  visit("lr", m.lr);
  visit("grad_norm", m.grad_norm);
  visit("clip_coefficient", m.clip_coefficient);
  visit("tokens", m.tokens);
  visit("trained_tokens", m.trained_tokens);
  visit("seconds", m.seconds);
  visit("moe_seconds", m.moe_seconds);
  visit("bytes_update", m.bytes_update);
}

template <class Metrics, class Visit>
void visit_moe(Metrics& m, Visit visit) {
  visit("moe_forward_seconds", m.moe_forward_seconds);
  visit("moe_backward_seconds", m.moe_backward_seconds);
  visit("moe_exchange_seconds", m.moe_exchange_seconds);
  visit("moe_update_seconds", m.moe_update_seconds);
  visit("retained_ratio", m.retained_ratio);
  visit("added_variance", m.added_variance);
  visit("predicted_variance", m.predicted_variance);
  visit("imbalance_forward", m.imbalance_forward);
  visit("imbalance_backward", m.imbalance_backward);
  visit("bytes_forward", m.bytes_forward);
  visit("bytes_backward", m.bytes_backward);
  visit("dropped_pairs", m.dropped_pairs);
  visit("zero_pairs", m.zero_pairs);
  visit("memory_peak_bytes", m.memory_peak_bytes);
}

template <class Metrics, class Visit>
void visit_measured(Metrics& m, Visit visit) {
  visit("seconds", m.seconds);
  visit("moe_seconds", m.moe_seconds);
  visit("moe_forward_seconds", m.moe_forward_seconds);
  visit("moe_backward_seconds", m.moe_backward_seconds);
  visit("moe_exchange_seconds", m.moe_exchange_seconds);
  visit("moe_update_seconds", m.moe_update_seconds);
}

template <class Metrics, class Visit>
void visit_parts(Metrics& m, Visit visit) {
  visit("plan", m.plan);
  visit("statistics", m.statistics);
  visit("select", m.select);
  visit("weight_exchange", m.weight_exchange);
  visit("scores", m.scores);
  visit("rest", m.rest);
}

template <class Terms, class Visit>
void visit_memory(Terms& m, Visit visit) {
  visit("weights", m.weights);
  visit("gradients", m.gradients);
  visit("activations", m.activations);
  visit("buffers", m.buffers);
  visit("workspace", m.workspace);
}

Json number(std::int64_t x) {
  return x;
}
Json number(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}

/// Not in files of earlier programs.
bool came_later(std::string_view name) {
  return name == "trained_tokens" || name == "zero_pairs";
}

void read(const Json& json, const char* name, std::int64_t& x) {
  if (json.contains(name) || !came_later(name)) {
    x = json.at(name).get<std::int64_t>();
  }
}
void read_real(const Json& value, double& x) {
  x = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}
void read(const Json& json, const char* name, double& x) {
  read_real(json.at(name), x);
}

Json to_json(const Agreement& agreement) {
  return {{"cosine", number(agreement.cosine)},
          {"relative_error", number(agreement.relative_error)}};
}

Agreement read_agreement(const Json& json) {
  Agreement agreement;
  read(json, "cosine", agreement.cosine);
  read(json, "relative_error", agreement.relative_error);
  return agreement;
}

Json to_json(const Audit& audit) {
  Json layers = Json::array();
  for (const LayerAudit& layer : audit.layers) {
    Json& json = layers.emplace_back(Json{{"layer", layer.layer}});
    if (layer.experts) {
      json["experts"] = to_json(*layer.experts);
    }
    if (layer.router) {
      json["router"] = to_json(*layer.router);
    }
    json["dense"] = to_json(layer.dense);
  }
  return {{"seconds", number(audit.seconds)}, {"layers", layers}, {"rest", to_json(audit.rest)}};
}

Audit read_audit(const Json& json) {
  Audit audit;
  read(json, "seconds", audit.seconds);
  for (const Json& item : json.at("layers")) {
    LayerAudit& layer = audit.layers.emplace_back();
    layer.layer = item.at("layer").get<int>();
    layer.dense = read_agreement(item.at("dense"));
    if (item.contains("experts")) {
      layer.experts = read_agreement(item.at("experts"));
    }
    if (item.contains("router")) {
      layer.router = read_agreement(item.at("router"));
    }
  }
  audit.rest = read_agreement(json.at("rest"));
  return audit;
}

struct Line {
  std::string text;
  bool complete = false;  // ended by a newline
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back({text.substr(begin, end - begin), end != std::string::npos});
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  Json json;
  const auto put = [&json](const char* name, auto x) { json[name] = number(x); };
  visit_step(metrics, put);
  visit_moe(metrics.moe, put);
  if (metrics.validation_loss) {
    put("validation_loss", *metrics.validation_loss);
  }
  json["clock"] = metrics.clock;
  const auto object = [&json](const char* name) {
    return
        [&part = json[name] = Json::object()](const char* key, auto x) { part[key] = number(x); };
  };
  if (metrics.measured) {
    visit_measured(*metrics.measured, object("measured"));
  }
  if (metrics.parts) {
    visit_parts(*metrics.parts, object("parts"));
  }
  if (metrics.memory) {
    visit_memory(*metrics.memory, object("memory"));
  }
  for (const LayerNote& note : metrics.notes) {
    json["notes"].push_back({{"layer", note.layer}, {"note", note.text}});
  }
  if (metrics.audit) {
    json["audit"] = to_json(*metrics.audit);
  }
  Json& layers = json["layers"] = Json::object();
  layers["layer"] = metrics.layer_index;
  visit_moe(metrics.moe, [&layers](const char* name, auto) { layers[name] = Json::array(); });
  for (const MoeMetrics& layer : metrics.layers) {
    visit_moe(layer, [&layers](const char* name, auto x) { layers[name].push_back(number(x)); });
  }
  return json.dump();
}

StepMetrics from_json_line(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    StepMetrics metrics;
    const auto take = [&json](const char* name, auto& x) { read(json, name, x); };
    visit_step(metrics, take);
    visit_moe(metrics.moe, take);
    if (json.contains("validation_loss")) {
      take("validation_loss", metrics.validation_loss.emplace());
    }
    metrics.clock = json.value("clock", metrics.clock);
    const auto from = [&json](const char* name) {
      return [&part = json.at(name)](const char* key, auto& x) { read(part, key, x); };
    };
    if (json.contains("measured")) {
      visit_measured(metrics.measured.emplace(), from("measured"));
    }
    if (json.contains("parts")) {
      visit_parts(metrics.parts.emplace(), from("parts"));
    }
    if (json.contains("memory")) {
      visit_memory(metrics.memory.emplace(), from("memory"));
    }
    for (const Json& note : json.value("notes", Json::array())) {
      metrics.notes.push_back({note.at("layer").get<int>(), note.at("note").get<std::string>()});
    }
    if (json.contains("audit")) {
      metrics.audit = read_audit(json.at("audit"));
    }
    const Json& layers = json.at("layers");
    metrics.layer_index = layers.at("layer").get<std::vector<int>>();
    metrics.layers.resize(metrics.layer_index.size());
    for (std::size_t i = 0; i < metrics.layers.size(); ++i) {
      visit_moe(metrics.layers[i], [&](const char* name, auto& x) {
        if constexpr (std::is_same_v<decltype(x), double&>) {
          read_real(layers.at(name).at(i), x);
        } else {
          x = layers.contains(name) || !came_later(name)
                  ? layers.at(name).at(i).template get<std::int64_t>()
                  : x;
        }
      });
    }
    return metrics;
  } catch (const Json::exception& error) {
    throw InputError("not a line of metrics: " + one_line(error.what()));
  }
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : file_(path, OutputFile::Mode::append) {}

void MetricsWriter::write(const StepMetrics& metrics) {
  file_.write(to_json_line(metrics) + "\n");
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& path) {
  std::vector<StepMetrics> steps;
  for (const Line& line : lines_of(read_text(path))) {
    if (!line.complete) {
      break;  // the run was cut off while it wrote this one
    }
    try {
      steps.push_back(from_json_line(line.text));
    } catch (const InputError& error) {
      throw InputError(quote(path.string()) + ", line " + std::to_string(steps.size() + 1) + ": " +
                       error.what());
    }
  }
  return steps;
}

void truncate_metrics(const std::filesystem::path& path, std::int64_t last_step) {
  if (!std::filesystem::exists(path)) {
    return;
  }
  const std::vector<StepMetrics> steps = read_metrics(path);
  const std::vector<Line> lines = lines_of(read_text(path));
  std::string kept;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].step <= last_step) {
      kept += lines[i].text + "\n";
    }
  }
  write_file(path, kept);
}

}  // namespace lrmoe::train
