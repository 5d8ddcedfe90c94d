#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"
#include "lrmoe/trace/summary.h"

namespace lrmoe::trace {
namespace {

using Column = double LayerSummary::*;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// "1,282,632"
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string count(std::int64_t value, const std::string& one) {
  return grouped(value) + " " + one + (value == 1 ? "" : "s");
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string row(const std::string& name, const Summary& summary, double expert, double rank,
                double idle, double gates, double drift) {
  std::string text = padded(name, 5) + padded(format("%.2f", expert), 11);
  if (summary.ranks > 0) {
    text += padded(format("%.2f", rank), 13);
  }
  return text + padded(format(summary.info.steps == 1 ? "%.0f" : "%.1f", idle), 9) +
         padded(format("%.1f%%", 100 * gates), 11) + padded(format("%.1f%%", 100 * drift), 9) +
         "\n";
}

double mean_of(const Summary& summary, Column column) {
  double sum = 0;
  for (const LayerSummary& layer : summary.layers) {
    sum += layer.*column;
  }
  return sum / static_cast<double>(summary.layers.size());
}

double most_of(const Summary& summary, Column column) {
  double most = 0;
  for (const LayerSummary& layer : summary.layers) {
    most = std::max(most, layer.*column);
  }
  return most;
}

std::string header_lines(const Summary& summary) {
  const Info& info = summary.info;
  std::int64_t pairs = 0, not_routed = 0, least = -1, most = 0;
  for (const LayerSummary& layer : summary.layers) {
    pairs += layer.pairs;
    not_routed += layer.not_routed;
    least = least < 0 ? layer.tokens : std::min(least, layer.tokens);
    most = std::max(most, layer.tokens);
  }
  std::string text = "trace    " + summary.file.substr(1, summary.file.size() - 2) + ", " +
                     print_size(summary.bytes) + "\n";
  text += "model    " + (info.model.empty() ? "not known" : one_line(info.model)) + "\n";
  if (!info.source.empty()) {
    text += "source   " + one_line(info.source) + "\n";
  }
  text += "shape    " + count(info.experts, "expert") + ", top-" + std::to_string(info.top_k) +
          ", " + count(info.layers, "layer") + ", " + count(info.steps, "step");
  text += info.hidden > 0 ? ", hidden " + std::to_string(info.hidden) : "";
  text += info.expert_width > 0 ? ", expert width " + std::to_string(info.expert_width) : "";
  text += "\ntokens   " + grouped(least) + (least == most ? "" : " to " + grouped(most)) +
          " in each layer" + (info.steps > 1 ? ", over all steps" : "") + "; " +
          count(pairs, "pair") + " routed" +
          (not_routed > 0 ? ", " + grouped(not_routed) + " not routed" : "");
  text += "\nwith     gates";
  text += summary.sources ? ", the ranks that tokens come from" : "";
  if (summary.sources && info.ranks > 0) {
    text += " (" + std::to_string(info.ranks) + ")";
  }
  return text + (summary.scores ? ", scores" : "") + "\n\n";
}

nlohmann::ordered_json layer_json(const LayerSummary& layer, bool ranks) {
  nlohmann::ordered_json json{{"layer", layer.layer},
                              {"tokens", layer.tokens},
                              {"pairs", layer.pairs},
                              {"not_routed", layer.not_routed},
                              {"expert_imbalance", layer.expert_imbalance}};
  if (ranks) {
    json["rank_imbalance"] = layer.rank_imbalance;
  }
  json["idle_experts"] = layer.idle_experts;
  json["top_half_gates"] = layer.top_half_gates;
  json["drift"] = layer.drift;
  json["heat"] = layer.heat;
  return json;
}

}  // namespace

std::string to_text(const Summary& summary) {
  const bool ranks = summary.ranks > 0;
  const std::string rank_head = count(summary.ranks, "rank");
  std::string text = header_lines(summary);
  text +=
      "        load, max/mean" + std::string(ranks ? 11 : 0, ' ') + " idle   gates of    drift\n";
  text += "layer    experts" + (ranks ? padded(rank_head, 13) : "") + "  experts   top half" +
          padded(summary.between_halves ? "(halves)" : "(steps)", 9) + "\n";
  for (const LayerSummary& l : summary.layers) {
    text += row(std::to_string(l.layer), summary, l.expert_imbalance, l.rank_imbalance,
                l.idle_experts, l.top_half_gates, l.drift);
  }
  const auto total = [&](const char* name, auto of) {
    text +=
        row(name, summary, of(summary, &LayerSummary::expert_imbalance),
            of(summary, &LayerSummary::rank_imbalance), of(summary, &LayerSummary::idle_experts),
            of(summary, &LayerSummary::top_half_gates), of(summary, &LayerSummary::drift));
  };
  if (summary.layers.size() > 1) {
    total("mean", mean_of);
    total("most", most_of);
  }
  const bool steps = summary.info.steps > 1;
  text += "\nmax/mean         pairs of the fullest expert over the mean";
  text += steps ? ", mean over the steps\n" : "\n";
  if (ranks) {
    text += "                 or of the fullest rank, with expert e on rank floor(e R / E)\n";
  }
  text += "gates, top half  what the half of the pairs with the larger gates holds of all gates\n";
  text += "drift            share of the pairs that goes to other experts than in the ";
  text += steps ? "step before\n" : "first half of the tokens\n";
  return text;
}

std::string to_json(const Summary& summary) {
  using Json = nlohmann::ordered_json;
  const Info& info = summary.info;
  Json layers = Json::array();
  for (const LayerSummary& layer : summary.layers) {
    layers.push_back(layer_json(layer, summary.ranks > 0));
  }
  Json mean{{"expert_imbalance", mean_of(summary, &LayerSummary::expert_imbalance)},
            {"top_half_gates", mean_of(summary, &LayerSummary::top_half_gates)},
            {"drift", mean_of(summary, &LayerSummary::drift)}};
  if (summary.ranks > 0) {
    mean["rank_imbalance"] = mean_of(summary, &LayerSummary::rank_imbalance);
  }
  const Json json{{"format", "lrmoe-trace-info"},
                  {"version", 1},
                  {"trace", summary.file.substr(1, summary.file.size() - 2)},
                  {"model", info.model},
                  {"source", info.source},
                  {"experts", info.experts},
                  {"top_k", info.top_k},
                  {"num_steps", info.steps},
                  {"num_layers", info.layers},
                  {"hidden", info.hidden},
                  {"expert_width", info.expert_width},
                  {"ranks", summary.ranks},
                  {"bytes", summary.bytes},
                  {"sources", summary.sources},
                  {"scores", summary.scores},
                  {"drift_between", summary.between_halves ? "halves" : "steps"},
                  {"mean", mean},
                  {"layers", layers}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lrmoe::trace
