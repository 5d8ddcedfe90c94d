// Sampling is unbiased, and scores lower its variance.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "tests/moe/reference.h"

namespace lrmoe {
namespace {

using model::MoeConfig;
using model::RouterKind;
using plan::Activations;
using plan::Metric;
using plan::RouterGradient;
using testing::lrmoe_strategy;
using testing::on_ranks;
using testing::sampled;
using testing::small_layer;

// Projections of a gradient's mean over draws on the whole gradient and on a
// random direction.
struct Projection {
  at::Tensor onto;
  double target = 0.0, sum = 0.0, squares = 0.0;

  void add(const at::Tensor& g) {
    const double v = (g * onto).sum().item<double>() - target;
    sum += v;
    squares += v * v;
  }
  double z(int draws) const {
    const double mean = sum / draws;
    const double variance = (squares - sum * mean) / (draws - 1);
    return mean / std::sqrt(variance / draws);
  }
  // Standard error of the mean over the whole: what bias the test can see.
  double resolution(int draws) const {
    return std::sqrt(squares / draws / draws) / std::abs(target);
  }
};

struct Watched {
  std::map<std::string, std::vector<Projection>> of;

  explicit Watched(const testing::LayerGradients& whole) {
    std::uint64_t seed = 100;
    each(whole, [&](const std::string& name, const at::Tensor& g) {
      for (const at::Tensor& onto : {g, testing::randn(g.sizes().vec(), ++seed)}) {
        of[name].push_back({onto, (g * onto).sum().item<double>()});
      }
    });
  }
  void add(const testing::LayerGradients& sample) {
    each(sample, [&](const std::string& name, const at::Tensor& g) {
      for (auto& projection : of[name]) {
        projection.add(g);
      }
    });
  }
  template <class F>
  static void each(const testing::LayerGradients& g, const F& f) {
    f("dWg", g.gate);
    f("dWu", g.up);
    f("dWd", g.down);
    f("dx", g.dx);
    f("router", g.router);
  }
};

struct Unbiased {
  std::string name;
  MoeConfig config;
  plan::LrmoeOptions options;
};

std::vector<Unbiased> unbiased_cases() {
  std::vector<Unbiased> cases = {
      {"softmax", small_layer(RouterKind::softmax, true, 1.0), sampled(0.3)},
      {"softmax_not_renormalised", small_layer(RouterKind::softmax, false, 1.0), sampled(0.3)},
      {"sigmoid", small_layer(RouterKind::sigmoid, true, 1.0), sampled(0.3)},
      {"sigmoid_scaled_recompute", small_layer(RouterKind::sigmoid, true, 2.5),
       sampled(0.3, Activations::recompute)},
      {"sigmoid_not_renormalised", small_layer(RouterKind::sigmoid, false, 2.5), sampled(0.3)},
      {"gate_grad", small_layer(RouterKind::softmax, true, 1.0), sampled(0.2)},
      {"kept", small_layer(RouterKind::softmax, true, 1.0), sampled(0.4)},
      {"exact", small_layer(RouterKind::sigmoid, true, 2.5), sampled(0.4, Activations::recompute)},
  };
  cases[5].options.metric = Metric::gate_grad;
  cases[6].options.router_gradient = RouterGradient::kept;
  cases[7].options.metric = Metric::exact;
  return cases;
}

// 8 cases x 5 tensors x 2 projections = 80 z values, two-sided beyond 4.5 with
// probability 7e-6 each: the seeds are fixed, so this passes or fails for good;
// before they were fixed the chance of a false alarm was 6e-4.
TEST(Unbiased, SampledGradients) {
  constexpr int kDraws = 500;
  for (const auto& c : unbiased_cases()) {
    SCOPED_TRACE(c.name);
    const auto w = testing::random_weights(c.config, 41);
    const at::Tensor x = testing::randn({48, c.config.hidden}, 42);
    const at::Tensor direction = testing::randn({48, c.config.hidden}, 43);
    const auto whole_strategy = lrmoe_strategy(sampled(1.0));
    std::unique_ptr<Watched> watched;
    testing::sampled_gradients(
        x, direction, w, c.config, *whole_strategy, on_ranks(2), 1,
        [&](const testing::LayerGradients& g) { watched = std::make_unique<Watched>(g); });
    const auto strategy = lrmoe_strategy(c.options);
    testing::sampled_gradients(x, direction, w, c.config, *strategy, on_ranks(2), kDraws,
                               [&](const testing::LayerGradients& g) { watched->add(g); });
    for (const auto& [name, projections] : watched->of) {
      for (const auto& projection : projections) {
        EXPECT_LT(std::abs(projection.z(kDraws)), 4.5) << name;
      }
      // A gradient that shrank by a tenth would show.
      EXPECT_LT(projections[0].resolution(kDraws), 0.025) << name;
    }
  }
}

double spread(const plan::LrmoeOptions& options) {
  const MoeConfig c = small_layer(RouterKind::softmax, true, 1.0);
  const auto w = testing::random_weights(c, 51);
  // Tokens and directions of very different sizes, as in training.
  const at::Tensor x = testing::randn({60, c.hidden}, 52);
  const at::Tensor direction =
      testing::randn({60, c.hidden}, 53) * at::exp(testing::randn({60, 1}, 54));
  const auto strategy = lrmoe_strategy(options);
  at::Tensor sum, squares;
  constexpr int kDraws = 200;
  testing::sampled_gradients(
      x, direction, w, c, *strategy, on_ranks(2), kDraws, [&](const testing::LayerGradients& g) {
        const at::Tensor all = at::cat({g.gate.flatten(), g.up.flatten(), g.down.flatten()});
        sum = sum.defined() ? sum + all : all;
        squares = squares.defined() ? squares + all.square() : all.square();
      });
  const at::Tensor mean = sum / kDraws;
  return (squares / kDraws - mean.square()).sum().item<double>();
}

TEST(Unbiased, ScoresLowerTheVarianceBelowUniformSampling) {
  plan::LrmoeOptions by_norm = sampled(0.3), uniform = sampled(0.3), oracle = sampled(0.3);
  uniform.metric = Metric::random;
  oracle.metric = Metric::exact;
  const double with_norm = spread(by_norm), with_none = spread(uniform),
               with_oracle = spread(oracle);
  std::printf("variance of dW: uniform 1, update-norm %.3f, exact %.3f\n", with_norm / with_none,
              with_oracle / with_none);
  EXPECT_LT(with_norm, 0.8 * with_none);
  EXPECT_LT(with_oracle, 0.8 * with_none);
}

}  // namespace
}  // namespace lrmoe
