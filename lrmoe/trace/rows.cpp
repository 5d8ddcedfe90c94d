#include "lrmoe/trace/rows.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "lrmoe/base/names.h"

namespace lrmoe::trace {
namespace {

std::string describe(std::int64_t step, std::int64_t layer) {
  return "step " + std::to_string(step) + ", layer " + std::to_string(layer);
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace

Rows::Rows(const std::string& name, const ConvertOptions& options)
    : name_(quote(name)), options_(options) {}

std::string Rows::at(std::int64_t line) const {
  return name_ + " line " + std::to_string(line) + ": ";
}

void Rows::add(const Row& row, std::int64_t line) {
  const std::string where = at(line);
  for (const auto& [what, value] : {std::pair("step", row.step), std::pair("layer", row.layer),
                                    std::pair("token", row.token)}) {
    if (value < 0) {
      throw InputError(where + what + " " + std::to_string(value) + ": they count from 0");
    }
  }
  const bool first = places_.empty();
  if (first) {
    k_ = row.experts.size();
    with_source_ = row.source.has_value();
    with_scores_ = !row.scores.empty();
  }
  if (row.experts.empty() || row.experts.size() != k_) {
    throw InputError(where + std::to_string(row.experts.size()) + " experts" +
                     (first ? "; it takes at least one"
                            : " where the lines before have " + std::to_string(k_) +
                                  " (write -1 for a pair that was not routed)"));
  }
  if (row.gates.size() != k_) {
    throw InputError(where + std::to_string(row.gates.size()) + " gates for " + std::to_string(k_) +
                     " experts");
  }
  if (row.source.has_value() != with_source_ || row.scores.empty() == with_scores_) {
    throw InputError(where + "source and scores must stand in every line or in none");
  }
  if (with_scores_ && row.scores.size() != k_) {
    throw InputError(where + std::to_string(row.scores.size()) + " scores for " +
                     std::to_string(k_) + " experts");
  }
  const int experts = options_.experts > 0 ? options_.experts : kMostExperts;
  for (const std::int32_t id : row.experts) {
    if (id < kNotRouted || id >= experts) {
      throw InputError(where + "expert " + std::to_string(id) + " is not from 0 to " +
                       std::to_string(experts - 1) + " (or -1: not routed)");
    }
    largest_ = std::max(largest_, id);
  }
  std::vector<std::int32_t> sorted = row.experts;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] != kNotRouted && sorted[i] == sorted[i - 1]) {
      throw InputError(where + "expert " + std::to_string(sorted[i]) + " stands twice");
    }
  }
  if (!all_finite(row.gates) || !all_finite(row.scores)) {
    throw InputError(where + "a gate or score is not a finite number");
  }
  if (row.source && (*row.source < 0 || *row.source >= kMostRanks)) {
    throw InputError(where + "source " + std::to_string(*row.source) + " is not a rank from 0 to " +
                     std::to_string(kMostRanks - 1));
  }
  places_.push_back({row.step, row.layer, row.token, line, places_.size()});
  ids_.insert(ids_.end(), row.experts.begin(), row.experts.end());
  gates_.insert(gates_.end(), row.gates.begin(), row.gates.end());
  scores_.insert(scores_.end(), row.scores.begin(), row.scores.end());
  if (row.source) {
    sources_.push_back(*row.source);
  }
}

// `places_` is sorted: each place must be the one before plus a token, a layer or a step.
void Rows::check_order() const {
  std::int64_t last_layer = 0;
  for (const Place& place : places_) {
    last_layer = std::max(last_layer, place.layer);
  }
  const auto refuse = [](const std::string& where, std::int64_t step, std::int64_t layer) {
    throw InputError(where + "there is no token of " + describe(step, layer) +
                     "; steps and layers count from 0, and each step has all layers");
  };
  Place last{0, 0, -1, 0, 0};
  for (const Place& place : places_) {
    const std::string here = describe(place.step, place.layer);
    const bool same = place.step == last.step && place.layer == last.layer;
    if (same && place.token == last.token) {
      throw InputError(at(place.line) + here + ", token " + std::to_string(place.token) +
                       " stands in line " + std::to_string(last.line) + " already");
    }
    const bool ends = last.layer == last_layer;
    const std::int64_t next_step = ends ? last.step + 1 : last.step;
    const std::int64_t next_layer = ends ? 0 : last.layer + 1;
    if (!same && last.token < 0) {
      refuse(at(place.line) + here + ", but ", 0, 0);
    }
    if (!same && (place.step != next_step || place.layer != next_layer)) {
      refuse(at(place.line) + here + ", but ", next_step, next_layer);
    }
    const std::int64_t wanted = same ? last.token + 1 : 0;
    if (place.token != wanted) {
      throw InputError(at(place.line) + here + ", token " + std::to_string(place.token) +
                       ", but there is no token " + std::to_string(wanted) +
                       " of it; they count from 0");
    }
    last = place;
  }
  if (last.layer != last_layer) {
    refuse(name_ + ": ", last.step, last.layer + 1);
  }
}

Trace Rows::finish() {
  if (places_.empty()) {
    throw InputError(name_ + ": there is no token in it");
  }
  const auto key = [](const Place& p) { return std::tuple(p.step, p.layer, p.token, p.line); };
  std::sort(places_.begin(), places_.end(),
            [&](const Place& a, const Place& b) { return key(a) < key(b); });
  check_order();
  Info info;
  info.model = options_.model;
  const std::string name = name_.substr(1, name_.size() - 2);
  info.source = "converted from " + std::filesystem::path(name).filename().string();
  info.experts = options_.experts > 0 ? options_.experts : largest_ + 1;
  info.top_k = static_cast<int>(k_);
  info.steps = static_cast<int>(places_.back().step + 1);
  info.layers = static_cast<int>(places_.back().layer + 1);  // the last step has them all
  info.hidden = options_.hidden;
  info.expert_width = options_.expert_width;
  std::vector<Routing> all;
  const Place* last = nullptr;
  for (const Place& place : places_) {
    if (last == nullptr || place.layer != last->layer || place.step != last->step) {
      all.emplace_back().top_k = info.top_k;
    }
    last = &place;
    Routing& routing = all.back();
    ++routing.tokens;
    const auto copy = [&](const auto& from, auto& to) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(place.index * k_);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(k_));
    };
    copy(ids_, routing.ids);
    copy(gates_, routing.gates);
    if (with_scores_) {
      copy(scores_, routing.scores);
    }
    if (with_source_) {
      routing.sources.push_back(sources_[place.index]);
      info.ranks = std::max(info.ranks, routing.sources.back() + 1);
    }
  }
  return Trace(info, std::move(all), name);
}

}  // namespace lrmoe::trace
