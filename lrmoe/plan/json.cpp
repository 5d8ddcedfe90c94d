#include "lrmoe/plan/json.h"

#include <nlohmann/json.hpp>

namespace lrmoe::plan {
namespace {

using Json = nlohmann::ordered_json;

Json rows(const Counts& table) {
  Json out = Json::array();
  for (int r = 0; r < table.rows; ++r) {
    const auto row = table.row(r);
    out.push_back(std::vector<std::int32_t>(row.begin(), row.end()));
  }
  return out;
}

Json routes(const Split& split) {
  Json out = Json::array();
  for (const Route& route : split) {
    out.push_back({route.source, route.expert, route.rank, route.pairs});
  }
  return out;
}

Json memory(const MemoryTerms& terms) {
  return {{"weights", terms.weights},         {"gradients", terms.gradients},
          {"activations", terms.activations}, {"buffers", terms.buffers},
          {"workspace", terms.workspace},     {"total", terms.total()}};
}

}  // namespace

Json to_json(const Plan& plan, double seconds) {
  Json out;
  out["format"] = "lrmoe-plan";
  out["version"] = 1;
  out["strategy"] = plan.strategy;
  out["ranks"] = plan.cluster.ranks;
  out["experts"] = plan.cluster.experts;
  out["slots"] = plan.cluster.slots;
  out["top_k"] = plan.cluster.top_k;
  out["demand"] = rows(plan.demand);
  out["quota"] = rows(plan.quota);
  out["placement"] = rows(plan.placement);
  out["dropped"] = rows(plan.dropped);
  out["forward"] = routes(plan.forward);
  out["backward"] = routes(plan.backward);
  out["keep_all"] = plan.keep_all;
  out["added_variance"] = plan.added_variance;
  out["memory"] = Json::array();
  for (const MemoryTerms& terms : plan.memory) {
    out["memory"].push_back(memory(terms));
  }
  out["seconds"] = {{"plan", seconds}};
  out["notes"] = plan.notes;
  return out;
}

}  // namespace lrmoe::plan
