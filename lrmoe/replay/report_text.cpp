#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "lrmoe/base/names.h"
#include "lrmoe/base/text_table.h"
#include "lrmoe/replay/memory.h"
#include "lrmoe/replay/report.h"

namespace lrmoe::replay {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::size_t kMostNotes = 8;

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string percent(double part, double whole) {
  return whole > 0 ? print("%.1f%%", 100 * part / whole) : "-";
}

/// "0.62" of what `base` takes, "-" without one.
std::string ratio(double value, const Result* base, double of_base) {
  return base != nullptr && of_base > 0 ? print("%.3f", value / of_base) : "-";
}

std::string head(const Report& report) {
  const Options& o = report.options;
  const cost::Shape& shape = o.clock.shape;
  const trace::Info& info = report.info;
  std::string text = report.trace + ": " + std::to_string(info.layers) + " layers, " +
                     std::to_string(info.steps) + (info.steps == 1 ? " step of " : " steps of ") +
                     with_commas(report.tokens) + " tokens, " + std::to_string(info.experts) +
                     " experts, top " + std::to_string(info.top_k);
  if (o.clock.scale != 1) {
    const double tokens = static_cast<double>(report.tokens) * o.clock.scale;
    text += "; each token stands for " + print_number(o.clock.scale) + ": " +
            with_commas(std::llround(tokens)) + " a step, " +
            with_commas(std::llround(tokens / o.ranks)) + " a rank";
  }
  text += "\n" + std::to_string(o.ranks) + " ranks, " + shape.name + " (hidden " +
          std::to_string(shape.hidden) + ", expert width " + std::to_string(shape.width) +
          "), clock virtual:" + o.clock.profile.name + "\n";
  text += o.placing == Placing::next_step ? "placement planned on the step before"
                                          : "placement planned on the step itself";
  text += report.scores ? "; pairs selected by the trace's scores\n"
                        : "; the trace has no scores: pairs selected by their gates\n";
  return text;
}

std::string load_table(const Report& report) {
  TextRows rows{{"load: fullest rank / mean", "slots", "forward", "backward", "kept", "dropped",
                 "added variance"}};
  for (const Result& r : report.results) {
    const auto routed = static_cast<double>(r.routed);
    rows.push_back({r.entry.label, std::to_string(r.slots), print("%.4f", r.imbalance_forward),
                    print("%.4f", r.imbalance_backward),
                    percent(static_cast<double>(r.kept), routed),
                    r.dropped == 0 ? "0" : percent(static_cast<double>(r.dropped), routed),
                    r.added_variance > 0 ? print("%.3f", r.added_variance) : "0"});
  }
  return aligned(rows);
}

std::string time_table(const Report& report) {
  TextRows rows{{"MoE layers, ms a step", "forward", "backward", "update", "total", "exchange",
                 "/fixed", "/symi", "GB forward", "backward", "weights"}};
  const double steps = report.info.steps;
  const Result* fixed = find_result(report, "fixed");
  const Result* symi = find_result(report, "symi");
  const auto total = [](const Result* r) { return r == nullptr ? 0 : r->total.seconds.total(); };
  const auto ms = [&](double seconds) { return print("%.2f", 1e3 * seconds / steps); };
  const auto gb = [&](double bytes) { return print("%.3f", 1e-9 * bytes / steps); };
  for (const Result& r : report.results) {
    const cost::Seconds& s = r.total.seconds;
    const cost::SentBytes& b = r.total.bytes;
    rows.push_back({r.entry.label, ms(s.forward), ms(s.backward), ms(s.update), ms(s.total()),
                    ms(s.exchange + s.weight_exchange), ratio(s.total(), fixed, total(fixed)),
                    ratio(s.total(), symi, total(symi)), gb(b.forward), gb(b.backward),
                    gb(b.weights)});
  }
  return aligned(rows);
}

/// The first note of each kind and strategy; the JSON has them all. What stands before
/// the colon is the kind, the figures behind it change from layer to layer.
std::string notes(const Report& report) {
  std::map<std::string, std::string> first;
  for (const Result& r : report.results) {
    for (const LayerResult& layer : r.layers) {
      for (const std::string& note : layer.notes) {
        first.emplace(r.entry.label + note.substr(0, note.find(':')),
                      "note: " + r.entry.label + ", first in layer " + std::to_string(layer.layer) +
                          ": " + note + "\n");
      }
    }
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [kind, note] : first) {
    text += shown++ < kMostNotes ? note : "";
  }
  return text;
}

}  // namespace

std::string memory_text(const Report& report) {
  TextRows rows{{"memory, GiB on the fullest rank", "weights", "gradients", "activations",
                 "buffers", "subtotal", "/fixed", "/fixed alike", "workspace"}};
  const Result* fixed = find_result(report, "fixed");
  const auto gib = [](std::int64_t bytes) {
    return print("%.3f", static_cast<double>(bytes) / kGiB);
  };
  const auto whole = [](const Result* r) {
    return r == nullptr ? 0.0 : static_cast<double>(subtotal(r->memory));
  };
  for (const Result& r : report.results) {
    const plan::MemoryTerms& t = r.memory;
    const Result* alike = find_result(report, "fixed", &r);
    rows.push_back({r.entry.label, gib(t.weights), gib(t.gradients), gib(t.activations),
                    gib(t.buffers), gib(subtotal(r.memory)), ratio(whole(&r), fixed, whole(fixed)),
                    ratio(whole(&r), alike, whole(alike)), gib(t.workspace)});
  }
  return aligned(rows) + "weights, gradients and activations of " +
         std::to_string(report.layers_in_flight) +
         " MoE layers in flight, buffers of the one whose passes need most; \"alike\": the same "
         "activations and chunks\n";
}

std::string to_text(const Report& report) {
  return head(report) + "\n" + load_table(report) + "\n" + time_table(report) + "\n" +
         memory_text(report) + notes(report);
}

}  // namespace lrmoe::replay
