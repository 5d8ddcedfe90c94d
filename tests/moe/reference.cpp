#include "tests/moe/reference.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "lrmoe/base/hash.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::testing {

at::Tensor randn(std::vector<std::int64_t> shape, std::uint64_t seed, double std) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty(shape, at::kDouble).normal_(0.0, std, generator);
}

LayerWeights random_weights(const model::MoeConfig& c, std::uint64_t seed) {
  LayerWeights w;
  w.router = randn({c.experts, c.hidden}, hash({seed, 1}), 0.5).requires_grad_();
  if (c.router == model::RouterKind::sigmoid) {
    w.bias = randn({c.experts}, hash({seed, 2}), 0.3);
  }
  w.gate_up =
      randn({c.experts, 2 * c.expert_width, c.hidden}, hash({seed, 3}), 0.4).requires_grad_();
  w.down = randn({c.experts, c.hidden, c.expert_width}, hash({seed, 4}), 0.4).requires_grad_();
  return w;
}

ReferenceResult reference_layer(const at::Tensor& x, const LayerWeights& w,
                                const model::MoeConfig& c,
                                const std::function<bool(std::int64_t)>& keep) {
  ReferenceResult result;
  std::vector<at::Tensor> rows;
  std::vector<at::Tensor> shares;
  std::vector<double> count(static_cast<std::size_t>(c.experts), 0.0);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor z = at::mv(w.router, x[t]);
    const bool softmax = c.router == model::RouterKind::softmax;
    const at::Tensor s = softmax
                             ? at::exp(z - z.max().detach()) / at::exp(z - z.max().detach()).sum()
                             : 1.0 / (1.0 + at::exp(-z));
    const at::Tensor choice = (w.bias.defined() ? s + w.bias : s).detach();
    std::vector<std::int64_t> order(static_cast<std::size_t>(c.experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return choice[a].item<double>() > choice[b].item<double>();
    });
    at::Tensor chosen_sum = at::zeros({}, at::kDouble);
    for (int j = 0; j < c.top_k; ++j) {
      chosen_sum = chosen_sum + s[order[static_cast<std::size_t>(j)]];
    }
    at::Tensor row = at::zeros({c.hidden}, at::kDouble);
    for (int j = 0; j < c.top_k; ++j) {
      const auto e = order[static_cast<std::size_t>(j)];
      result.experts.push_back(e);
      count[static_cast<std::size_t>(e)] += 1.0;
      if (keep && !keep(t * c.top_k + j)) {
        continue;
      }
      at::Tensor p = s[e] * c.routed_scale;
      if (c.renormalise) {
        p = p / chosen_sum;
      }
      const at::Tensor g = at::mv(w.gate_up[e].slice(0, 0, c.expert_width), x[t]);
      const at::Tensor u = at::mv(w.gate_up[e].slice(0, c.expert_width), x[t]);
      row = row + p * at::mv(w.down[e], g / (1.0 + at::exp(-g)) * u);
    }
    rows.push_back(row);
    shares.push_back(softmax ? s : s / s.sum());
  }
  result.out = at::stack(rows);
  const at::Tensor mean_share = at::stack(shares).mean(0);
  const double pairs = static_cast<double>(x.size(0) * c.top_k);
  result.aux = c.experts * (mean_share * at::tensor(count, at::kDouble) / pairs).sum();
  return result;
}

namespace {

// Puts the reference's weights into a rank's slots through the optimizer's delivery.
std::unique_ptr<optim::ExpertOptimizer> fill(moe::MoeLayer& layer, const LayerWeights& w,
                                             comm::Communicator& comm,
                                             const plan::Strategy& strategy,
                                             at::ScalarType master) {
  const auto& c = layer.config();
  const optim::ShardMap map{comm.size(), c.experts, std::int64_t{3} * c.hidden * c.expert_width,
                            strategy.owns_experts()};
  const auto initial = [&](int e) {
    return at::cat({w.gate_up[e].detach().flatten(), w.down[e].detach().flatten()});
  };
  auto optimizer = std::make_unique<optim::ExpertOptimizer>(map, comm, initial, master);
  optimizer->deliver(layer.slots().placement, layer.slots());
  const at::NoGradGuard no_grad;
  layer.router_weight.copy_(w.router);
  if (w.bias.defined()) {
    layer.router_bias.copy_(w.bias);
  }
  return optimizer;
}

std::vector<std::int64_t> even(std::int64_t tokens, int ranks) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(tokens * (r + 1) / ranks - tokens * r / ranks);
  }
  return counts;
}

}  // namespace

namespace {

// The shards of all ranks, put together: [E, 3dn].
at::Tensor join_shards(const optim::ShardMap& map, const std::vector<at::Tensor>& shards) {
  const at::Tensor flat = at::zeros({map.experts, map.length}, at::kDouble);
  for (int r = 0; r < map.ranks; ++r) {
    std::int64_t offset = 0;
    for (int e = 0; e < map.experts; ++e) {
      const auto [b, n] = map.range(r, e);
      flat[e].slice(0, b, n).add_(shards[static_cast<std::size_t>(r)].narrow(0, offset, n - b));
      offset += n - b;
    }
  }
  return flat;
}

// Forward and backward passes on all ranks; `passed` per rank, `each` once per pass.
void run_passes(
    const at::Tensor& x, const at::Tensor& direction, const LayerWeights& weights,
    const model::MoeConfig& c, const plan::Strategy& strategy, const RankedOptions& options,
    int passes,
    const std::function<void(moe::MoeLayer&, const moe::MoeLayer::Output&, int)>& passed,
    const std::function<void(const LayerGradients&)>& each) {
  const auto tokens = options.tokens.empty() ? even(x.size(0), options.ranks) : options.tokens;
  const auto ranks = static_cast<std::size_t>(options.ranks);
  std::vector<at::Tensor> dx(ranks), router(ranks), shards(ranks);
  comm::run_ranks(options.ranks, [&](comm::Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    moe::MoeLayer layer(c, 0, options.slots, comm, strategy, 1, 0.02, options.dtype);
    const auto master = options.dtype == at::kDouble ? at::kDouble : at::kFloat;
    const auto optimizer = fill(layer, weights, comm, strategy, master);
    if (options.prepare) {
      options.prepare(layer);
    }
    const auto begin =
        std::accumulate(tokens.begin(), tokens.begin() + comm.rank(), std::int64_t{0});
    const at::Tensor target = direction.slice(0, begin, begin + tokens[r]).to(options.dtype);
    for (int pass = 0; pass < passes; ++pass) {
      at::Tensor mine = x.detach().slice(0, begin, begin + tokens[r]).to(options.dtype).clone();
      mine.requires_grad_();
      layer.router_weight.mutable_grad() = at::Tensor();
      layer.slots().reset(layer.slots().placement);
      moe::StepInfo info = options.step;
      info.step = pass;
      const auto output = layer.forward(mine, info);
      torch::autograd::backward({(output.y * target).sum() + options.aux_weight * output.aux}, {});
      optimizer->reduce(layer.slots());
      passed(layer, output, comm.rank());
      shards[r] = optimizer->gradient.to(at::kDouble);
      dx[r] = mine.grad().to(at::kDouble);
      router[r] = layer.router_weight.grad().to(at::kDouble);
      comm.barrier();
      if (comm.rank() == 0) {
        const optim::ShardMap map{options.ranks, c.experts,
                                  std::int64_t{3} * c.hidden * c.expert_width,
                                  strategy.owns_experts()};
        const at::Tensor flat = join_shards(map, shards);
        const std::int64_t matrix = std::int64_t{c.expert_width} * c.hidden;
        const auto view = [&](std::int64_t from, std::int64_t rows) {
          return flat.narrow(1, from, matrix).reshape({c.experts, rows, matrix / rows});
        };
        each({view(0, c.expert_width), view(matrix, c.expert_width), view(2 * matrix, c.hidden),
              at::cat(dx), at::stack(router).sum(0)});
      }
      comm.barrier();
    }
  });
}

}  // namespace

RankedResult ranked_layer(const at::Tensor& x, const at::Tensor& direction,
                          const LayerWeights& weights, const model::MoeConfig& c,
                          const plan::Strategy& strategy, const RankedOptions& options) {
  RankedResult result;
  result.work.resize(static_cast<std::size_t>(options.ranks));
  std::vector<double> aux(result.work.size());
  std::vector<at::Tensor> out(result.work.size());
  const auto passed = [&](moe::MoeLayer& layer, const moe::MoeLayer::Output& output, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    out[r] = output.y.detach().to(at::kDouble);
    aux[r] = output.aux.item<double>();
    result.work[r] = layer.work().back();
    if (rank == 0) {
      result.plans = layer.whole_plans();
    }
  };
  run_passes(x, direction, weights, c, strategy, options, 1, passed, [&](const LayerGradients& g) {
    result.dx = g.dx;
    result.router_grad = g.router;
    result.gate_up_grad = at::cat({g.gate, g.up}, 1);
    result.down_grad = g.down;
  });
  result.out = at::cat(out);
  result.aux = std::accumulate(aux.begin(), aux.end(), 0.0);
  for (const auto d : result.plans.at(0).dropped.values) {
    result.dropped += d;
  }
  return result;
}

void sampled_gradients(const at::Tensor& x, const at::Tensor& direction,
                       const LayerWeights& weights, const model::MoeConfig& c,
                       const plan::Strategy& strategy, const RankedOptions& options, int draws,
                       const std::function<void(const LayerGradients&)>& each) {
  run_passes(
      x, direction, weights, c, strategy, options, draws,
      [](moe::MoeLayer&, const moe::MoeLayer::Output&, int) {}, each);
}

namespace {

class Scattered : public plan::Strategy {
 public:
  explicit Scattered(std::uint64_t seed) : seed_(seed) {}
  std::string_view name() const override { return "scattered"; }
  plan::Placement initial(const plan::Cluster& cluster) const override {
    return random_placement(cluster, seed_);
  }
  plan::Placement place(const plan::Cluster& cluster, const plan::Counts& demand,
                        const plan::Placement& present,
                        const plan::ScoreCurves* /*curves*/) const override {
    std::uint64_t h = seed_;
    for (const auto v : present.values) {
      h = hash({h, static_cast<std::uint64_t>(v + 1)});
    }
    return random_placement(cluster, hash({h, static_cast<std::uint64_t>(demand.at(0, 0))}));
  }
  plan::Plan route(const plan::RouteInput& in) const override {
    plan::Plan plan;
    plan.strategy = "scattered";
    plan.cluster = in.cluster;
    plan.demand = in.demand;
    plan.quota = in.demand;
    plan.dropped = plan::Counts(in.cluster.ranks, in.cluster.experts);
    plan.placement = in.placement;
    for (int r = 0; r < in.cluster.ranks; ++r) {
      for (int e = 0; e < in.cluster.experts; ++e) {
        spread(plan, r, e);
      }
    }
    plan.backward = plan.forward;
    return plan;
  }

 private:
  static plan::Placement random_placement(const plan::Cluster& c, std::uint64_t seed) {
    plan::Placement p(c.ranks, c.slots, -1);
    std::vector<int> next(static_cast<std::size_t>(c.ranks), 0);
    const auto put = [&](int rank, int e) {
      auto row = p.row(rank);
      auto& n = next[static_cast<std::size_t>(rank)];
      if (n < c.slots && std::find(row.begin(), row.end(), e) == row.end()) {
        p.at(rank, n++) = e;
        return true;
      }
      return false;
    };
    for (int e = 0; e < c.experts; ++e) {
      const auto start = static_cast<int>(hash({seed, 7, static_cast<std::uint64_t>(e)}) %
                                          static_cast<std::uint64_t>(c.ranks));
      for (int i = 0; i < c.ranks && !put((start + i) % c.ranks, e); ++i) {
      }
    }
    for (std::uint64_t i = 0; i < 4ULL * static_cast<std::uint64_t>(c.ranks * c.slots); ++i) {
      const auto h = hash({seed, 8, i});
      put(static_cast<int>(h % static_cast<std::uint64_t>(c.ranks)),
          static_cast<int>((h >> 32) % static_cast<std::uint64_t>(c.experts)));
    }
    return p;
  }

  void spread(plan::Plan& plan, int source, int e) const {
    std::vector<int> homes;
    for (int r = 0; r < plan.cluster.ranks; ++r) {
      const auto row = plan.placement.row(r);
      if (std::find(row.begin(), row.end(), e) != row.end()) {
        homes.push_back(r);
      }
    }
    std::vector<std::int32_t> share(homes.size(), 0);
    for (std::int32_t i = 0; i < plan.demand.at(source, e); ++i) {
      ++share[hash({seed_, 9, static_cast<std::uint64_t>(source), static_cast<std::uint64_t>(e),
                    static_cast<std::uint64_t>(i)}) %
              homes.size()];
    }
    for (std::size_t h = 0; h < homes.size(); ++h) {
      if (share[h] > 0) {
        plan.forward.push_back({source, e, homes[h], share[h]});
      }
    }
  }

  std::uint64_t seed_;
};

}  // namespace

namespace {

class Chunked : public plan::Strategy {
 public:
  Chunked(std::unique_ptr<const plan::Strategy> inner, int chunks)
      : inner_(std::move(inner)), chunks_(chunks) {}
  std::string_view name() const override { return inner_->name(); }
  bool owns_experts() const override { return inner_->owns_experts(); }
  const plan::LrmoeOptions* selection() const override { return inner_->selection(); }
  plan::Placement initial(const plan::Cluster& cluster) const override {
    return inner_->initial(cluster);
  }
  plan::Placement place(const plan::Cluster& cluster, const plan::Counts& demand,
                        const plan::Placement& present,
                        const plan::ScoreCurves* curves) const override {
    return inner_->place(cluster, demand, present, curves);
  }
  plan::Plan route(const plan::RouteInput& in) const override {
    plan::Plan plan = inner_->route(in);
    plan.chunks = chunks_;
    return plan;
  }

 private:
  std::unique_ptr<const plan::Strategy> inner_;
  int chunks_;
};

}  // namespace

std::unique_ptr<const plan::Strategy> chunked(std::unique_ptr<const plan::Strategy> strategy,
                                              int chunks) {
  return std::make_unique<Chunked>(std::move(strategy), chunks);
}

std::unique_ptr<const plan::Strategy> scattered_strategy(std::uint64_t seed) {
  return std::make_unique<Scattered>(seed);
}

model::MoeConfig small_layer(model::RouterKind router, bool renormalise, double scale) {
  return {10, 6, 3, 7, router, renormalise, scale, 1e-3};
}

std::unique_ptr<const plan::Strategy> lrmoe_strategy(const plan::LrmoeOptions& options) {
  plan::StrategyOptions strategy;
  strategy.name = "lrmoe";
  strategy.lrmoe = options;
  return plan::make_strategy(strategy);
}

plan::LrmoeOptions sampled(double ratio, plan::Activations activations) {
  plan::LrmoeOptions options;
  options.ratio = ratio;
  options.activations = activations;
  return options;
}

RankedOptions on_ranks(int ranks, at::ScalarType dtype) {
  RankedOptions options;
  options.ranks = ranks;
  options.slots = (6 + ranks - 1) / ranks + 2;
  options.dtype = dtype;
  return options;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         std::max(b.detach().abs().max().item<double>(), 1e-30);
}

}  // namespace lrmoe::testing
