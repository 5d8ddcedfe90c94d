#include <algorithm>
#include <nlohmann/json.hpp>

#include "lrmoe/replay/memory.h"
#include "lrmoe/replay/report.h"

namespace lrmoe::replay {
namespace {

using Json = nlohmann::ordered_json;

Json memory(const plan::MemoryTerms& terms) {
  return {{"weights", terms.weights},         {"gradients", terms.gradients},
          {"activations", terms.activations}, {"buffers", terms.buffers},
          {"workspace", terms.workspace},     {"total", terms.total()}};
}

Json seconds(const cost::Seconds& s) {
  return {{"forward", s.forward},
          {"backward", s.backward},
          {"update", s.update},
          {"exchange", s.exchange},
          {"weight_exchange", s.weight_exchange},
          {"fetch", s.fetch},
          {"plan", s.plan},
          {"statistics", s.statistics},
          {"select", s.select},
          {"scores", s.scores}};
}

Json bytes(const cost::SentBytes& b) {
  return {{"forward", b.forward},
          {"backward", b.backward},
          {"weights", b.weights},
          {"scores", b.scores}};
}

Json layer(const LayerResult& l) {
  return {{"layer", l.layer},
          {"step", l.step},
          {"forward_load", l.forward_load},
          {"backward_load", l.backward_load},
          {"routed", l.routed},
          {"kept", l.kept},
          {"dropped", l.dropped},
          {"added_variance", l.added_variance},
          {"bytes", bytes(l.cost.bytes)},
          {"seconds", seconds(l.cost.seconds)},
          {"memory", memory(l.memory)},
          {"notes", l.notes}};
}

Json against(const Report& report, const Result& result) {
  Json out = Json::object();
  for (const char* name : {"fixed", "symi"}) {
    if (const Result* base = find_result(report, name)) {
      const double time = base->total.seconds.total();
      out[name] = {
          {"seconds", time > 0 ? Json(result.total.seconds.total() / time) : Json()},
          {"memory", static_cast<double>(subtotal(result.memory)) /
                         static_cast<double>(std::max<std::int64_t>(subtotal(base->memory), 1))}};
    }
  }
  return out;
}

Json result_json(const Report& report, const Result& r) {
  Json layers = Json::array();
  for (const LayerResult& l : r.layers) {
    layers.push_back(layer(l));
  }
  const cost::Seconds& s = r.total.seconds;
  return {{"strategy", r.entry.label},
          {"slots", r.slots},
          {"activations", r.activations ? name_of(*r.activations) : "mixed"},
          {"chunks", r.chunks},
          {"layers", std::move(layers)},
          {"total",
           {{"seconds", s.total()},
            {"forward_seconds", s.forward},
            {"backward_seconds", s.backward},
            {"update_seconds", s.update},
            {"parts", seconds(s)},
            {"bytes", bytes(r.total.bytes)},
            {"imbalance_forward", r.imbalance_forward},
            {"imbalance_backward", r.imbalance_backward},
            {"routed_pairs", r.routed},
            {"kept_pairs", r.kept},
            {"dropped_pairs", r.dropped},
            {"added_variance", r.added_variance},
            {"memory_subtotal", subtotal(r.memory)},
            {"memory", memory(r.memory)},
            {"against", against(report, r)}}}};
}

}  // namespace

const Result* find_result(const Report& report, std::string_view strategy, const Result* like) {
  for (const Result& r : report.results) {
    const bool alike = like == nullptr || (r.activations && r.activations == like->activations &&
                                           r.chunks == like->chunks && r.least_chunks == r.chunks &&
                                           like->least_chunks == like->chunks);
    if (r.entry.options.name == strategy && alike) {
      return &r;
    }
  }
  return nullptr;
}

Json to_json(const Report& report) {
  const cost::ClockOptions& clock = report.options.clock;
  const bool next = report.options.placing == Placing::next_step;
  Json results = Json::array();
  for (const Result& r : report.results) {
    results.push_back(result_json(report, r));
  }
  return {{"format", "lrmoe-replay"},
          {"version", 1},
          {"model", clock.shape.name},
          {"profile", clock.profile.name},
          {"ranks", report.options.ranks},
          {"trace",
           {{"file", report.trace},
            {"model", report.info.model},
            {"experts", report.info.experts},
            {"top_k", report.info.top_k},
            {"layers", report.info.layers},
            {"steps", report.info.steps},
            {"scores", report.scores ? "trace" : "gates"}}},
          {"shape",
           {{"hidden", clock.shape.hidden},
            {"expert_width", clock.shape.width},
            {"layers", clock.shape.layers},
            {"element_bytes", clock.shape.element_bytes}}},
          {"tokens", report.tokens},
          {"scale", clock.scale},
          {"placement", next ? "next-step" : "same-step"},
          {"layers_in_flight", report.layers_in_flight},
          {"results", std::move(results)}};
}

}  // namespace lrmoe::replay
