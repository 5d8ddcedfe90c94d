#include "lrmoe/replay/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/costs.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/layer.h"
#include "lrmoe/replay/memory.h"
#include "lrmoe/replay/sources.h"

namespace lrmoe::replay {
namespace {

/// The tables of all layers' rows and pairs, which a whole step is priced from.
constexpr std::int64_t kTableBytes = std::int64_t{1} << 30;

/// One strategy's way through the trace.
class Runner {
 public:
  Runner(const trace::Trace& trace, const Options& options, const Entry& entry, int in_flight)
      : trace_(trace),
        options_(options),
        in_flight_(in_flight),
        memory_(memory_model(entry.options, options.clock.shape, options.clock.scale)) {
    const trace::Info& info = trace.info();
    result_.entry = entry;
    result_.entry.options.lrmoe.activations = plan::activations_of(entry.options);
    settings_.chunks = entry.chunks > 0 ? entry.chunks : options.chunks;
    const cost::ClockOptions& clock = options.clock;
    const int per_node =
        clock.ranks_per_node >= 0 ? clock.ranks_per_node : clock.profile.ranks_per_node;
    plan::StrategyOptions own = entry.options;
    own.costs = plan::plan_costs(clock.profile, clock.shape, clock.scale, options.ranks, per_node);
    if (options.budget > 0) {
      own.memory.bytes = options.budget;
      own.memory.layers = in_flight;
      own.memory.chunks = settings_.chunks;
      own.memory.model = memory_;
      own.memory.model.activations = plan::activations_of(own);
    }
    strategy_ = plan::make_strategy(own);
    in_step_ = strategy_->selection() != nullptr &&
               strategy_->selection()->placing == plan::Placing::in_step;
    const int slots = entry.slots > 0 ? entry.slots : options.slots;
    settings_.cluster = {options.ranks, info.experts,
                         slots_for(*strategy_, options.ranks, slots, info.experts), info.top_k,
                         per_node};
    settings_.options = result_.entry.options.lrmoe;
    plan::check_cluster(settings_.cluster);
    for (int l = 0; l < info.layers; ++l) {
      states_.push_back({strategy_->initial(settings_.cluster), plan::ScoreCurves(info.experts)});
    }
  }

  Result run() {
    for (int s = 0; s < trace_.info().steps; ++s) {
      run_step(s);
    }
    sum_up();
    return std::move(result_);
  }

 private:
  void run_step(int step) {
    const int layers = trace_.info().layers;
    const std::int64_t table = std::int64_t{20} * options_.ranks * options_.ranks;
    const bool apart = table * layers > kTableBytes;  // too much at once: layer by layer
    LayersInFlight in_flight(options_.ranks);
    cost::StepWork work;
    for (int l = 0; l < layers; ++l) {
      run_layer(step, l, work, in_flight);
      if (apart || l + 1 == layers) {
        price_layers(work);
        work = {};
      }
    }
    add_memory(in_flight);
  }

  Sources read(int step, int layer) const {
    trace::Routing routing = trace_.read(step, layer);
    if (options_.tokens > 0) {
      routing = with_tokens(routing, options_.tokens);
    }
    return split_sources(routing, trace_.info().experts, options_.ranks, trace_.info().ranks);
  }

  void run_layer(int step, int layer, cost::StepWork& work, LayersInFlight& in_flight) {
    LayerState& state = states_[static_cast<std::size_t>(layer)];
    const Sources sources = read(step, layer);
    plan::ScoreHistogram histogram(settings_.cluster.experts);
    if (options_.placing == Placing::same_step) {
      // The step is known before it is placed: its scores too.
      learn_scores(sources, *strategy_, state.curves);
    }
    if (options_.placing == Placing::same_step || in_step_) {
      state.placement =
          strategy_->place(settings_.cluster, sources.demand, state.placement, &state.curves);
    }
    settings_.draw = plan::selection_draw(options_.seed, trace_.info().first - 1 + step, 0, layer);
    LayerRun run = replay::run_layer(*strategy_, state, sources, settings_, histogram);

    cost::OptimizerWork optimizer;
    optimizer.experts = settings_.cluster.experts;
    optimizer.owned = strategy_->owns_experts();
    optimizer.instances = plan::used_slots(state.placement);
    if (!run.plan.keep_all || run.plan.score) {
      optimizer.score_bytes = static_cast<std::int64_t>(state.curves.state().size_bytes());
    }
    if (options_.placing == Placing::next_step) {
      if (!run.plan.keep_all || run.plan.score) {
        state.curves.update(histogram);
      }
      if (!in_step_) {
        state.placement =
            strategy_->place(settings_.cluster, sources.demand, state.placement, &state.curves);
      }
    }
    if (in_step_) {  // all weights came before the GEMMs, none go after the update
      for (std::size_t r = 0; r < run.work.size(); ++r) {
        run.work[r].fetched_instances = optimizer.instances[r];
      }
      optimizer.next_instances.assign(run.work.size(), 0);
    } else {
      optimizer.next_instances = plan::used_slots(state.placement);
    }
    work.optimizer.push_back(std::move(optimizer));
    note_layer(step, layer, run, in_flight);
    work.layers.push_back({std::move(run.work)});
  }

  void note_layer(int step, int layer, const LayerRun& run, LayersInFlight& in_flight) {
    const plan::Plan& plan = run.plan;
    LayerResult& out = result_.layers.emplace_back();
    note_settings(plan);
    out.layer = layer;
    out.step = step;
    out.forward_load = plan::rank_loads(plan.forward, options_.ranks);
    out.backward_load = plan::rank_loads(plan.backward, options_.ranks);
    out.routed = plan::total_pairs(plan.demand);
    out.kept = plan::total_pairs(plan.quota);
    out.dropped = plan::total_pairs(plan.dropped);
    double added = 0, total = 0;
    for (const cost::LayerWork& work : run.work) {
      added += work.added_variance;
      total += work.total_variance;
    }
    out.added_variance = total > 0 ? added / total : 0;
    out.plan_seconds = run.plan_seconds;
    out.notes = plan.notes;
    const LayerMemory memory = memory_of(plan, memory_);
    out.memory = plan::fullest(memory.terms);
    in_flight.add(memory);
  }

  /// What the plans of all layers and steps ran with.
  void note_settings(const plan::Plan& plan) {
    if (result_.layers.size() == 1) {
      result_.activations = plan.activations;
      result_.least_chunks = plan.chunks;
    }
    if (result_.activations != plan.activations) {
      result_.activations.reset();
    }
    result_.slots = std::max(result_.slots, plan::most_used_slots(plan.placement));
    result_.chunks = std::max(result_.chunks, plan.chunks);
    result_.least_chunks = std::min(result_.least_chunks, plan.chunks);
  }

  void price_layers(const cost::StepWork& work) {
    const cost::StepCost cost = cost::price_step(work, options_.clock);
    const std::size_t first = result_.layers.size() - cost.layers.size();
    for (std::size_t i = 0; i < cost.layers.size(); ++i) {
      result_.layers[first + i].cost = cost.layers[i];
    }
    result_.total.seconds += cost.total.seconds;
    result_.total.bytes += cost.total.bytes;
  }

  void add_memory(const LayersInFlight& in_flight) {
    const double factor = static_cast<double>(in_flight_) / trace_.info().layers;
    for (const plan::MemoryTerms& terms : in_flight.terms(factor)) {
      if (subtotal(terms) > subtotal(result_.memory)) {
        result_.memory = terms;
      }
    }
  }

  void sum_up() {
    double forward = 0, backward = 0, variance = 0;
    for (const LayerResult& layer : result_.layers) {
      forward += plan::imbalance(layer.forward_load);
      backward += plan::imbalance(layer.backward_load);
      variance += layer.added_variance;
      result_.routed += layer.routed;
      result_.kept += layer.kept;
      result_.dropped += layer.dropped;
    }
    const auto count = static_cast<double>(result_.layers.size());
    result_.imbalance_forward = forward / count;
    result_.imbalance_backward = backward / count;
    result_.added_variance = variance / count;
  }

  const trace::Trace& trace_;
  const Options& options_;
  int in_flight_;
  plan::MemoryModel memory_;
  std::unique_ptr<const plan::Strategy> strategy_;
  bool in_step_ = false;  // each step's placement is its own, its weights fetched first
  LayerSettings settings_;
  std::vector<LayerState> states_;  // [layer]
  Result result_;
};

}  // namespace

Report replay(const trace::Trace& trace, const Options& options) {
  const trace::Info& info = trace.info();
  Report report;
  report.options = options;
  report.info = info;
  report.trace = trace.name();
  if (options.clock.profile.measured) {
    throw InputError("profile " + options.clock.profile.name +
                     " measures what runs; a replay runs nothing: name another profile");
  }
  cost::Shape& shape = report.options.clock.shape;
  if (shape.hidden <= 0 || shape.width <= 0) {
    throw InputError(
        trace.name() +
        " does not say the model's hidden and expert_width; name a model with --model");
  }
  shape.layers = shape.layers > 0 ? shape.layers : info.layers;
  report.layers_in_flight = options.layers_in_flight > 0 ? options.layers_in_flight : shape.layers;
  report.scores = true;
  for (int s = 0; s < info.steps; ++s) {
    for (int l = 0; l < info.layers; ++l) {
      report.scores = report.scores && trace.has_scores(s, l);
      report.tokens = std::max(report.tokens, trace.tokens(s, l));
    }
  }
  report.tokens = options.tokens > 0 ? options.tokens : report.tokens;
  for (const Entry& entry : options.strategies) {
    report.results.push_back(Runner(trace, report.options, entry, report.layers_in_flight).run());
  }
  return report;
}

}  // namespace lrmoe::replay
