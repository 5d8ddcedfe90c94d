#include <nlohmann/json.hpp>

#include "lrmoe/base/names.h"
#include "lrmoe/base/size.h"
#include "lrmoe/base/text_table.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/replay/estimate.h"
#include "lrmoe/replay/memory.h"

namespace lrmoe::replay {
namespace {

using Json = nlohmann::ordered_json;

Json terms_json(const plan::MemoryTerms& terms) {
  return {{"weights", terms.weights},         {"gradients", terms.gradients},
          {"activations", terms.activations}, {"buffers", terms.buffers},
          {"workspace", terms.workspace},     {"total", terms.total()}};
}

std::string chunks_text(int chunks) {
  return std::to_string(chunks) + (chunks == 1 ? " chunk" : " chunks");
}

std::vector<std::string> row(const std::string& name, const plan::MemoryTerms& t) {
  return {name,
          print_size(t.weights),
          print_size(t.gradients),
          print_size(t.activations),
          print_size(t.buffers),
          print_size(t.workspace),
          print_size(t.total())};
}

std::string head(const Estimate& e) {
  const EstimateOptions& o = e.options;
  const cost::Shape& s = o.shape;
  return s.name + ": " + std::to_string(s.experts) + " experts of width " +
         std::to_string(s.width) + ", top " + std::to_string(s.top_k) + ", hidden " +
         std::to_string(s.hidden) + ", " + std::to_string(s.element_bytes) + " bytes an element\n" +
         o.strategy.name + " on " + std::to_string(o.ranks) + " ranks with " +
         std::to_string(e.slots) + " slots, activations " +
         name_of(plan::activations_of(e.options.strategy)) + ", " + chunks_text(o.chunks) + "; " +
         with_commas(o.tokens) + " tokens a step, " + with_commas(o.tokens / o.ranks) +
         " a rank; " + with_commas(e.kept) + " of " + with_commas(e.routed) +
         " pairs a layer kept\n" + "assumed: every rank routes alike, " +
         (o.imbalance == 1
              ? std::string("all experts have as many pairs")
              : "the fullest expert has " + print_number(o.imbalance) + " times the mean") +
         "; " + std::to_string(o.layers_in_flight) + " MoE layers in flight\n\n";
}

std::string budget_lines(const Estimate& e) {
  const EstimateOptions& o = e.options;
  std::string text;
  if (o.budget > 0) {
    const std::int64_t needed = plan::fullest(e.ranks).total();
    text += "budget " + print_size(o.budget) + ": " +
            (needed <= o.budget ? "fits"
                                : "does not fit, " + print_size(needed - o.budget) + " too much") +
            "\nlargest step that fits: " + with_commas(e.most_tokens) + " tokens (" +
            with_commas(e.most_tokens / o.ranks) + " a rank)";
    if (e.smallest_most_tokens > e.most_tokens) {
      text += "; with recompute, " + std::to_string(std::max(o.chunks, plan::kMostChunks)) +
              " chunks and no replicas " + with_commas(e.smallest_most_tokens);
    }
    text += "\n";
  }
  return text + "smallest budget for these tokens: " + print_size(e.smallest_budget) +
         " (recompute, " + std::to_string(std::max(o.chunks, plan::kMostChunks)) +
         " chunks, no replicas)\n";
}

/// What the planner would run in the budget.
std::string within_lines(const WithinBudget& w, const Estimate& e) {
  if (!w.refused.empty()) {
    return "a run would be refused: " + w.refused + "\n";
  }
  std::string text = "the planner, in that budget: " + std::to_string(w.slots) + " of " +
                     std::to_string(e.slots) + " slots, activations " + name_of(w.activations) +
                     ", " + chunks_text(w.chunks) + ", " + with_commas(w.kept) +
                     " pairs a layer kept; " + print_size(w.bytes) + " on the fullest rank";
  text += w.notes.empty() ? "; nothing is given up\n" : "\n";
  for (const std::string& note : w.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

Json within_json(const WithinBudget& w) {
  if (!w.refused.empty()) {
    return {{"planned", false}, {"refused", w.refused}};
  }
  return {{"planned", true},
          {"slots", w.slots},
          {"activations", name_of(w.activations)},
          {"chunks", w.chunks},
          {"kept_pairs", w.kept},
          {"bytes", w.bytes},
          {"fullest", terms_json(w.terms)},
          {"notes", w.notes}};
}

}  // namespace

std::string to_text(const Estimate& e) {
  plan::MemoryTerms least = e.ranks.front();
  for (const plan::MemoryTerms& terms : e.ranks) {
    least = terms.total() < least.total() ? terms : least;
  }
  std::string text = head(e);
  text += aligned(
      {{"of a rank", "weights", "gradients", "activations", "buffers", "workspace", "total"},
       row("fullest", plan::fullest(e.ranks)),
       row("least full", least)});
  text += "beside them the optimizer's shard, " + print_size(e.optimizer) + "\n\n";
  text += budget_lines(e);
  if (e.within) {
    text += within_lines(*e.within, e);
  }
  for (const std::string& note : e.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

Json to_json(const Estimate& e) {
  const EstimateOptions& o = e.options;
  Json ranks = Json::array();
  for (const plan::MemoryTerms& terms : e.ranks) {
    ranks.push_back(terms_json(terms));
  }
  const plan::MemoryTerms fullest = plan::fullest(e.ranks);
  return {{"format", "lrmoe-estimate"},
          {"version", 1},
          {"model", o.shape.name},
          {"strategy", o.strategy.name},
          {"ranks", o.ranks},
          {"slots", e.slots},
          {"experts", o.shape.experts},
          {"top_k", o.shape.top_k},
          {"tokens", o.tokens},
          {"imbalance", o.imbalance},
          {"activations", name_of(plan::activations_of(e.options.strategy))},
          {"chunks", o.chunks},
          {"layers_in_flight", o.layers_in_flight},
          {"routed_pairs", e.routed},
          {"kept_pairs", e.kept},
          {"memory", std::move(ranks)},
          {"fullest", terms_json(fullest)},
          {"memory_subtotal",
           fullest.weights + fullest.gradients + fullest.activations + fullest.buffers},
          {"optimizer", e.optimizer},
          {"budget", o.budget > 0 ? Json(o.budget) : Json()},
          {"fits", o.budget > 0 ? Json(fullest.total() <= o.budget) : Json()},
          {"largest_tokens", o.budget > 0 ? Json(e.most_tokens) : Json()},
          {"largest_tokens_at_least_memory", o.budget > 0 ? Json(e.smallest_most_tokens) : Json()},
          {"smallest_budget", e.smallest_budget},
          {"within_budget", e.within ? within_json(*e.within) : Json()},
          {"notes", e.notes}};
}

}  // namespace lrmoe::replay
