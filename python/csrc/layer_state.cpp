#include "python/csrc/layer_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/names.h"
#include "lrmoe/comm/c10d.h"
#include "lrmoe/comm/single.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::python {
namespace {

using Json = nlohmann::json;

std::vector<std::int64_t> to_vector(const at::Tensor& ids) {
  const at::Tensor flat = ids.to(at::kCPU, at::kLong).reshape({-1}).contiguous();
  const auto* data = flat.const_data_ptr<std::int64_t>();
  return {data, data + flat.numel()};
}

train::Value value_of(const Json& json) {
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_number_integer()) {
    return json.get<std::int64_t>();
  }
  if (json.is_number()) {
    return json.get<double>();
  }
  if (json.is_string()) {
    return json.get<std::string>();
  }
  return std::monostate{};
}

// Keys of [lrmoe] that the trainer of the program alone understands.
bool of_trainer(const std::string& key) {
  return key == "audit_every" || key == "placement";
}

plan::LrmoeOptions with_option(const plan::LrmoeOptions& options, const std::string& key,
                               const Json& json) {
  const train::Field* field = of_trainer(key) ? nullptr : train::find_field("lrmoe", key);
  if (field == nullptr) {
    auto names = train::key_names("lrmoe");
    std::erase_if(names, of_trainer);
    names.emplace_back("seed");
    throw InputError("[configure] there is no option " + quote(key) + suggestion(key, names));
  }
  train::Config config;
  config.strategy.lrmoe = options;
  const train::Value value = value_of(json);
  if (!field->set(config, value)) {
    throw InputError("[configure] " + key + " must be " + field->expected + ", not " +
                     one_line(json.dump()));
  }
  return config.strategy.lrmoe;
}

std::unique_ptr<const plan::Strategy> strategy_of(const plan::LrmoeOptions& options) {
  return plan::make_strategy({.name = "lrmoe", .lrmoe = options});
}

// Expert e on rank floor(e R / E), in the order of their numbers.
plan::Placement owners(const plan::Cluster& cluster) {
  const int most = (cluster.experts + cluster.ranks - 1) / cluster.ranks;
  plan::Placement placement(cluster.ranks, most, -1);
  for (int e = 0; e < cluster.experts; ++e) {
    const int rank = static_cast<int>(std::int64_t{e} * cluster.ranks / cluster.experts);
    *std::ranges::find(placement.row(rank), -1) = e;
  }
  return placement;
}

std::unique_ptr<comm::Communicator> communicator_of(const Json& settings) {
  const std::string group = settings.value("group", "");
  return group.empty() ? comm::make_single() : comm::make_c10d(group);
}

}  // namespace

LayerState::LayerState(const Json& settings)
    : communicator_(communicator_of(settings)),
      curves_(settings.at("experts").get<int>()),
      histogram_(std::make_shared<plan::ScoreHistogram>(settings.at("experts").get<int>())) {
  const int experts = settings.at("experts").get<int>();
  cluster_ = {communicator_->size(), experts, 0, 1, 0};
  owned_ = owners(cluster_);
  cluster_.slots = settings.value("slots", owned_.cols);
  plan::check_cluster(cluster_);
  options_.ratio = 1.0;
  strategy_ = strategy_of(options_);
  index_ = settings.value("index", std::int64_t{0});
  delivers_ = cluster_.slots > owned_.cols;
  placement_ = delivers_ ? strategy_->initial(cluster_) : owned_;
  step_demand_ = plan::Counts(cluster_.ranks, cluster_.experts);
}

void LayerState::configure(const Json& options) {
  plan::LrmoeOptions wanted = options_;
  std::uint64_t seed = seed_;
  std::int64_t index = index_;
  for (const auto& [key, value] : options.items()) {
    if (key == "seed") {
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
        throw InputError("[configure] seed must be a whole number, at least 0, not " +
                         one_line(value.dump()));
      }
      seed = value.get<std::uint64_t>();
    } else if (key == "index") {
      index = value.get<std::int64_t>();
    } else {
      wanted = with_option(wanted, key, value);
    }
  }
  strategy_ = strategy_of(wanted);
  options_ = wanted;
  seed_ = seed;
  index_ = index;
}

// Tied to what is routed and not to the number of calls, so that a checkpointed
// layer that runs its forward pass once more draws the same.
std::int64_t LayerState::draw(const plan::Counts& demand) const {
  std::uint64_t routed = hash("demand");
  for (const auto count : demand.values) {
    routed = hash({routed, static_cast<std::uint64_t>(count)});
  }
  const std::uint64_t bits = hash({seed_, hash("draw"), static_cast<std::uint64_t>(step_),
                                   static_cast<std::uint64_t>(index_), routed});
  return static_cast<std::int64_t>(bits >> (64 - plan::kQuotaBits));
}

moe::ExpertsCall LayerState::call(const at::Tensor& ids, const at::Tensor& gates, bool backward,
                                  Pass pass) {
  moe::ExpertsCall call;
  call.communicator = communicator_.get();
  call.experts = to_vector(ids);
  call.backward = backward;
  call.work = std::make_shared<cost::LayerWork>();
  call.work->tokens = ids.size(0);
  call.options = options_;
  const bool selects = backward && pass != Pass::whole;
  if (selects) {
    call.listed = moe::shortlist_by_gate(options_, gates);
  }

  const auto e_count = static_cast<std::size_t>(cluster_.experts);
  std::vector<std::int32_t> mine(2 * e_count, 0);  // demand, and the listed pairs of it
  for (std::size_t i = 0; i < call.experts.size(); ++i) {
    const std::int64_t e = call.experts[i];
    if (e < 0 || e >= cluster_.experts) {
      throw InputError("[experts] expert ids must be from 0 to " +
                       std::to_string(cluster_.experts - 1) + ", not " + std::to_string(e));
    }
    ++mine[static_cast<std::size_t>(e)];
    mine[e_count + static_cast<std::size_t>(e)] +=
        !call.listed.empty() && call.listed[i] != 0 ? 1 : 0;
  }
  std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(cluster_.ranks));
  communicator_->all_gather(comm::view(std::span<const std::int32_t>(mine)),
                            comm::view(std::span<std::int32_t>(all)));
  plan::Counts demand(cluster_.ranks, cluster_.experts), listed = demand;
  for (int r = 0; r < cluster_.ranks; ++r) {
    const auto* row = all.data() + mine.size() * static_cast<std::size_t>(r);
    std::copy_n(row, e_count, demand.row(r).begin());
    std::copy_n(row + e_count, e_count, listed.row(r).begin());
  }

  plan::Cluster cluster = cluster_;
  cluster.top_k = static_cast<int>(ids.size(1));
  plan::RouteInput input{cluster, demand, placement_, !selects};
  input.curves = &curves_;
  // By the options, which the ranks share: one without tokens has no list.
  const bool shortlists =
      selects && options_.shortlist < 1.0 && options_.shortlist_by == plan::ShortlistBy::gate;
  input.listed = shortlists ? &listed : nullptr;
  input.draw = draw(demand);
  plan::RouteScratch scratch;
  call.plan = std::make_shared<const plan::RankPlan>(
      strategy_->route_rank(input, communicator_->rank(), scratch));
  if (selects && pass == Pass::train) {
    call.histogram = histogram_;
    for (std::size_t i = 0; i < demand.values.size(); ++i) {
      step_demand_.values[i] += demand.values[i];
    }
  }
  return call;
}

void LayerState::see_weights(const at::Tensor& gate_up, const at::Tensor& down) {
  if (told_steps_ || gate_up.is_inference() || down.is_inference()) {
    return;
  }
  const std::pair<std::int64_t, std::int64_t> now{gate_up._version(), down._version()};
  if (versions_ && *versions_ != now) {
    end_step();
    ++step_;
  }
  versions_ = now;
}

void LayerState::set_step(std::int64_t step) {
  told_steps_ = true;
  if (step != step_) {
    end_step();
    step_ = step;
  }
}

void LayerState::end_step() {
  // Ranks agree on the options, so all of them take part or none.
  const bool selects = options_.ratio < 1.0 || options_.variance > 0.0 || options_.shortlist < 1.0;
  if (selects) {
    communicator_->all_reduce(comm::view(histogram_->counts()), comm::Reduce::sum);
    const auto counts = histogram_->counts();
    if (std::ranges::any_of(counts, [](std::int64_t n) { return n != 0; })) {
      curves_.update(*histogram_);
      histogram_->clear();
    }
  }
  if (delivers_) {
    placement_ = strategy_->place(cluster_, step_demand_, placement_, &curves_);
    std::ranges::fill(step_demand_.values, 0);
  }
}

void LayerState::count(const moe::ExpertsCall& call) {
  const std::lock_guard lock(mutex_);
  const cost::LayerWork& work = *call.work;
  const auto sum = [](const std::vector<std::int32_t>& values) {
    return std::accumulate(values.begin(), values.end(), std::int64_t{0});
  };
  const auto add = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& values) {
    to.resize(values.size(), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      to[i] += values[i];
    }
  };
  ++counts_.passes;
  counts_.pairs += sum(work.forward_pairs);
  counts_.kept += sum(work.backward_pairs);
  counts_.added_variance += work.added_variance;
  counts_.total_variance += work.total_variance;
  add(counts_.demand, call.plan->expert_pairs);
  add(counts_.forward_load, call.plan->forward_loads);
  add(counts_.backward_load, call.plan->backward_loads);
}

LayerCounts LayerState::take_counts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

at::Tensor LayerState::state() const {
  std::vector<std::int64_t> values{step_};
  const auto curves = curves_.state();
  values.insert(values.end(), curves.begin(), curves.end());
  return at::tensor(values, at::kLong);
}

void LayerState::restore(const at::Tensor& state) {
  const auto values = to_vector(state);
  if (values.size() != curves_.state().size() + 1) {
    throw InputError("[restore] the state of a layer with " + std::to_string(cluster_.experts) +
                     " experts has " + std::to_string(curves_.state().size() + 1) +
                     " numbers, not " + std::to_string(values.size()));
  }
  step_ = values[0];
  curves_.restore(std::span(values).subspan(1));
  histogram_->clear();
  versions_.reset();
}

LayerRegistry& LayerRegistry::instance() {
  static LayerRegistry registry;
  return registry;
}

std::int64_t LayerRegistry::add(std::shared_ptr<LayerState> layer) {
  const std::lock_guard lock(mutex_);
  layers_.emplace(next_, std::move(layer));
  return next_++;
}

std::shared_ptr<LayerState> LayerRegistry::get(std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = layers_.find(number);
  if (found == layers_.end()) {
    throw InputError("[lrmoe] there is no layer " + std::to_string(number));
  }
  return found->second;
}

void LayerRegistry::remove(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  layers_.erase(number);
}

}  // namespace lrmoe::python
