#include "lrmoe/moe/layer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <optional>

#include "lrmoe/base/hash.h"
#include "lrmoe/base/stopwatch.h"
#include "lrmoe/moe/experts.h"
#include "lrmoe/moe/router.h"
#include "lrmoe/moe/scoring.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/outline.h"

namespace lrmoe::moe {
namespace {

at::Tensor normal(std::uint64_t seed, std::int64_t count, double std) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty({count}, at::kFloat).normal_(0.0, std, generator);
}

std::vector<std::int64_t> to_vector(const at::Tensor& ids) {
  const at::Tensor flat = ids.to(at::kCPU).reshape({-1}).contiguous();
  const auto* data = flat.const_data_ptr<std::int64_t>();
  return {data, data + flat.numel()};
}

/// What a plan is made from.
struct Planned {
  plan::RouteInput input;
  std::optional<plan::Counts> listed;  // input.listed points here
};

}  // namespace

struct MoeLayer::Impl {
  model::MoeConfig config;
  int layer;
  comm::Communicator& comm;
  const plan::Strategy& strategy;
  std::uint64_t seed;
  double init_std;
  plan::Cluster cluster;
  ExpertSlots slots;
  plan::Counts step_demand;
  std::vector<plan::RankPlan> plans;
  std::vector<std::shared_ptr<cost::LayerWork>> work;
  plan::ScoreCurves curves;
  std::shared_ptr<plan::ScoreHistogram> histogram;  // this rank's scores in this step
  std::function<void(std::span<const float>)> watch_scores = {};
  std::function<void(std::span<const std::int64_t>, std::span<const float>)> watch_routing = {};
  std::vector<std::unique_ptr<const Planned>> planned = {};  // what `plans` were made from
  plan::RouteScratch scratch = {};
  std::function<void(const plan::Placement&)> fetch = {};  // placement in-step
  bool stale = false;  // in-step: the weights have changed since they were fetched

  struct Gathered {
    plan::Counts demand;
    std::optional<plan::Counts> listed;  // where there are shortlists by gate
  };
  Gathered gather_demand(std::span<const std::int64_t> experts, std::span<const std::uint8_t> flags,
                         bool shortlists) const {
    const auto e_count = static_cast<std::size_t>(cluster.experts);
    std::vector<std::int32_t> mine(e_count * (shortlists ? 2 : 1), 0);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const auto e = static_cast<std::size_t>(experts[i]);
      ++mine[e];
      if (shortlists && flags[i] != 0) {
        ++mine[e_count + e];
      }
    }
    std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(cluster.ranks));
    comm.all_gather(comm::view(std::span<const std::int32_t>(mine)),
                    comm::view(std::span<std::int32_t>(all)));
    Gathered out{plan::Counts(cluster.ranks, cluster.experts), {}};
    if (shortlists) {
      out.listed = out.demand;
    }
    for (int r = 0; r < cluster.ranks; ++r) {
      const auto* row = all.data() + mine.size() * static_cast<std::size_t>(r);
      std::copy_n(row, e_count, out.demand.row(r).begin());
      if (shortlists) {
        std::copy_n(row + e_count, e_count, out.listed->row(r).begin());
      }
    }
    return out;
  }

  std::unique_ptr<const Planned> to_plan(Gathered gathered, const StepInfo& info) const {
    auto made = std::make_unique<Planned>();
    plan::RouteInput& input = made->input;
    input = {cluster, std::move(gathered.demand), slots.placement, info.evaluate || info.keep_all};
    input.curves = &curves;
    made->listed = std::move(gathered.listed);
    input.listed = made->listed ? &*made->listed : nullptr;
    input.draw = plan::selection_draw(seed, info.step, info.micro_batch, layer);
    return made;
  }

  // Placement in-step: a step's first micro-batch decides for all of them.
  double fetch_seconds(const plan::Counts& demand, const StepInfo& info, cost::LayerWork& done) {
    const Stopwatch watch;
    if (!info.evaluate && !info.keep_all && plans.empty()) {
      fetch(strategy.place(cluster, demand, slots.placement, &curves));
    } else if (stale) {
      fetch(plan::Placement(slots.placement));
    } else {
      return 0.0;
    }
    done.fetched_instances = static_cast<std::int64_t>(slots.instances(slots.rank).size());
    stale = false;
    return watch.seconds();
  }

  // Scores of all ranks into the curves. Every rank has seen the same plans, so
  // all of them take part or none.
  void learn_scores() {
    const bool selected = std::any_of(
        plans.begin(), plans.end(), [](const plan::RankPlan& p) { return !p.keep_all || p.score; });
    if (selected) {
      comm.all_reduce(comm::view(histogram->counts()), comm::Reduce::sum);
      curves.update(*histogram);
      histogram->clear();
    }
  }

  // Each expert's pairs, of all ranks; fp64, which holds them exactly.
  static at::Tensor pairs(const plan::Counts& demand) {
    std::vector<double> f(static_cast<std::size_t>(demand.cols), 0.0);
    for (int r = 0; r < demand.rows; ++r) {
      for (int e = 0; e < demand.cols; ++e) {
        f[static_cast<std::size_t>(e)] += demand.at(r, e);
      }
    }
    return at::tensor(f, at::kDouble);
  }

  // f_e: each expert's share of the pairs of all ranks.
  static at::Tensor fractions(const at::Tensor& pairs, at::ScalarType dtype) {
    return (pairs / std::max(pairs.sum().item<double>(), 1.0)).to(dtype);
  }
};

MoeLayer::MoeLayer(const model::MoeConfig& config, int layer, int slots,
                   comm::Communicator& communicator, const plan::Strategy& strategy,
                   std::uint64_t seed, double init_std, at::ScalarType weights, int ranks_per_node)
    : impl_(new Impl{config,
                     layer,
                     communicator,
                     strategy,
                     seed,
                     init_std,
                     {communicator.size(), config.experts, slots, config.top_k, ranks_per_node},
                     {},
                     plan::Counts(communicator.size(), config.experts),
                     {},
                     {},
                     plan::ScoreCurves(config.experts),
                     std::make_shared<plan::ScoreHistogram>(config.experts)}) {
  plan::check_cluster(impl_->cluster);
  const auto wide = weights == at::kDouble ? at::kDouble : at::kFloat;
  const std::uint64_t router_seed = hash({seed, static_cast<std::uint64_t>(layer), hash("router")});
  router_weight = normal(router_seed, std::int64_t{config.experts} * config.hidden, init_std)
                      .view({config.experts, config.hidden})
                      .to(wide)
                      .requires_grad_();
  if (config.router == model::RouterKind::sigmoid) {
    router_bias = at::zeros({config.experts}, wide);
  }
  auto& s = impl_->slots;
  s.rank = communicator.rank();
  s.placement = strategy.initial(impl_->cluster);
  s.gate_up =
      at::zeros({s.used(), 2 * config.expert_width, config.hidden}, weights).requires_grad_();
  s.down = at::zeros({s.used(), config.hidden, config.expert_width}, weights).requires_grad_();
}

at::Tensor MoeLayer::initial_expert(int expert) const {
  const auto& c = impl_->config;
  const std::uint64_t seed = hash({impl_->seed, static_cast<std::uint64_t>(impl_->layer),
                                   hash("expert"), static_cast<std::uint64_t>(expert)});
  return normal(seed, std::int64_t{3} * c.hidden * c.expert_width, impl_->init_std);
}

MoeLayer::Output MoeLayer::forward(const at::Tensor& x, const StepInfo& info) {
  const Stopwatch watch;
  auto work = std::make_shared<cost::LayerWork>();
  work->tokens = x.size(0);

  const Routing routing = route(x, router_weight, router_bias, impl_->config);
  ExpertsCall call;
  call.communicator = &impl_->comm;
  call.experts = to_vector(routing.ids);
  call.backward = !info.evaluate;
  call.zero_deltas = info.zero_deltas;
  if (impl_->watch_routing && !info.evaluate && !info.keep_all) {
    const at::Tensor gates =
        routing.gates.detach().to(at::kCPU, at::kFloat).reshape({-1}).contiguous();
    impl_->watch_routing(call.experts,
                         {gates.const_data_ptr<float>(), static_cast<std::size_t>(gates.numel())});
  }
  call.work = work;
  const plan::LrmoeOptions* selection = impl_->strategy.selection();
  const bool shortlists = selection != nullptr && !info.evaluate && !info.keep_all &&
                          selection->shortlist < 1.0 &&
                          selection->shortlist_by == plan::ShortlistBy::gate;
  if (selection != nullptr) {
    call.options = *selection;
    call.histogram = info.keep_all ? nullptr : impl_->histogram;
    call.watch_scores = info.keep_all ? nullptr : impl_->watch_scores;
    work->plan_cells = std::int64_t{impl_->cluster.ranks} * impl_->cluster.experts;
  }
  if (shortlists) {
    call.listed = shortlist_by_gate(*selection, routing.gates);
  }

  const Stopwatch exchange;
  auto gathered = impl_->gather_demand(call.experts, call.listed, shortlists);
  work->exchange_seconds += exchange.seconds();
  const double fetching = impl_->fetch ? impl_->fetch_seconds(gathered.demand, info, *work) : 0.0;
  const Stopwatch planning;
  auto planned = impl_->to_plan(std::move(gathered), info);
  const plan::Counts& demand = planned->input.demand;
  call.plan = std::make_shared<const plan::RankPlan>(
      impl_->strategy.route_rank(planned->input, impl_->comm.rank(), impl_->scratch));
  work->plan_seconds += planning.seconds();
  work->forward_seconds += watch.seconds() - fetching;  // that is the update's

  Output out;
  out.pairs = Impl::pairs(demand);
  const at::Tensor fraction = Impl::fractions(out.pairs, routing.share.scalar_type());
  const auto plan = call.plan;
  out.y = experts(x, routing.gates, impl_->slots, std::move(call));
  const auto pairs = static_cast<std::int64_t>(out.pairs.sum().item<double>());
  out.share = routing.share.sum(0);
  out.aux = load_loss(out.share, fraction, std::max<std::int64_t>(pairs / impl_->config.top_k, 1));
  if (!info.evaluate && !info.keep_all) {
    for (std::size_t i = 0; i < demand.values.size(); ++i) {
      impl_->step_demand.values[i] += demand.values[i];
    }
    impl_->plans.push_back(*plan);
    impl_->planned.push_back(std::move(planned));
    impl_->work.push_back(work);
  }
  return out;
}

plan::Placement MoeLayer::finish_step() {
  if (router_bias.defined()) {
    // Towards an even load without a loss (Wang et al., arXiv 2408.15664).
    const at::Tensor f =
        Impl::fractions(Impl::pairs(impl_->step_demand), router_bias.scalar_type());
    router_bias.add_(at::sign(f.mean() - f), impl_->config.bias_rate);
  }
  impl_->learn_scores();
  impl_->stale = true;
  plan::Placement next = impl_->fetch
                             ? impl_->slots.placement
                             : impl_->strategy.place(impl_->cluster, impl_->step_demand,
                                                     impl_->slots.placement, &impl_->curves);
  impl_->step_demand = plan::Counts(impl_->cluster.ranks, impl_->cluster.experts);
  impl_->plans.clear();
  impl_->planned.clear();
  impl_->work.clear();
  return next;
}

void MoeLayer::place_in_step(std::function<void(const plan::Placement&)> fetch) {
  impl_->fetch = std::move(fetch);
}

ExpertSlots& MoeLayer::slots() {
  return impl_->slots;
}
const model::MoeConfig& MoeLayer::config() const {
  return impl_->config;
}
const plan::Cluster& MoeLayer::cluster() const {
  return impl_->cluster;
}
const plan::Counts& MoeLayer::step_demand() const {
  return impl_->step_demand;
}
const std::vector<plan::RankPlan>& MoeLayer::plans() const {
  return impl_->plans;
}
std::vector<plan::Plan> MoeLayer::whole_plans() const {
  std::vector<plan::Plan> whole;
  for (const auto& planned : impl_->planned) {
    whole.push_back(impl_->strategy.route(planned->input));
  }
  return whole;
}
const std::vector<std::shared_ptr<cost::LayerWork>>& MoeLayer::work() const {
  return impl_->work;
}
void MoeLayer::watch_scores(std::function<void(std::span<const float>)> watcher) {
  impl_->watch_scores = std::move(watcher);
}
void MoeLayer::watch_routing(
    std::function<void(std::span<const std::int64_t>, std::span<const float>)> watcher) {
  impl_->watch_routing = std::move(watcher);
}
plan::ScoreCurves& MoeLayer::curves() {
  return impl_->curves;
}

}  // namespace lrmoe::moe
