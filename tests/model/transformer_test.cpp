// The dense parts of the model against a naive double implementation.
#include "lrmoe/model/transformer.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>

#include "lrmoe/comm/threads.h"
#include "lrmoe/model/blocks.h"

namespace lrmoe::model {
namespace {

// A strategy for models without MoE layers: nobody asks it anything.
class NoStrategy final : public plan::Strategy {
 public:
  std::string_view name() const override { return "none"; }
  plan::Placement initial(const plan::Cluster& c) const override { return {c.ranks, c.slots, -1}; }
  plan::Placement place(const plan::Cluster&, const plan::Counts&, const plan::Placement& present,
                        const plan::ScoreCurves*) const override {
    return present;
  }
  plan::Plan route(const plan::RouteInput&) const override { return {}; }
};

ModelConfig small_config() {
  ModelConfig config;
  config.vocabulary = 11;
  config.layers = 2;
  config.hidden = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.dense_layers = {0, 1};
  config.dense_width = 12;
  config.sequence = 8;
  config.init_std = 0.3;
  return config;
}

using Row = std::vector<double>;

Row row_of(const at::Tensor& t, std::int64_t i) {
  const at::Tensor r = t.detach().to(at::kDouble).select(0, i).contiguous().view({-1});
  return {r.data_ptr<double>(), r.data_ptr<double>() + r.numel()};
}

Row times(const at::Tensor& weight, const Row& x) {
  Row y(static_cast<std::size_t>(weight.size(0)));
  for (std::size_t o = 0; o < y.size(); ++o) {
    const Row w = row_of(weight, static_cast<std::int64_t>(o));
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[o] += w[i] * x[i];
    }
  }
  return y;
}

Row norm(const Row& x, const at::Tensor& weight, double eps) {
  double square = 0;
  for (const double v : x) {
    square += v * v;
  }
  const double scale = 1.0 / std::sqrt(square / static_cast<double>(x.size()) + eps);
  const Row w = row_of(weight.view({1, -1}), 0);
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * w[i];
  }
  return y;
}

void rotate(Row& heads, int count, int position, double theta) {
  const std::size_t dim = heads.size() / static_cast<std::size_t>(count);
  for (std::size_t h = 0; h < heads.size(); h += dim) {
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double angle =
          position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const double a = heads[h + i];
      const double b = heads[h + i + dim / 2];
      heads[h + i] = a * std::cos(angle) - b * std::sin(angle);
      heads[h + i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

// Sum of cross-entropy of one sequence, scalar loops throughout.
double naive_loss(const ModelConfig& config, const std::vector<Parameter>& parameters,
                  const std::vector<int>& tokens, const std::vector<int>& targets) {
  const auto find = [&](const std::string& name) {
    for (const Parameter& p : parameters) {
      if (p.name == name) {
        return p.value;
      }
    }
    throw std::runtime_error("no parameter " + name);
  };
  const std::size_t length = tokens.size();
  const std::size_t dim = static_cast<std::size_t>(config.hidden / config.heads);
  std::vector<Row> x;
  for (const int token : tokens) {
    x.push_back(row_of(find("embedding"), token));
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    std::vector<Row> q, k, v;
    for (std::size_t t = 0; t < length; ++t) {
      const Row n = norm(x[t], find(prefix + "attention.norm"), config.norm_eps);
      q.push_back(times(find(prefix + "attention.query"), n));
      k.push_back(times(find(prefix + "attention.key"), n));
      v.push_back(times(find(prefix + "attention.value"), n));
      rotate(q.back(), config.heads, static_cast<int>(t), config.rope_theta);
      rotate(k.back(), config.kv_heads, static_cast<int>(t), config.rope_theta);
    }
    for (std::size_t t = 0; t < length; ++t) {
      Row mixed(static_cast<std::size_t>(config.hidden));
      for (std::size_t h = 0; h < static_cast<std::size_t>(config.heads); ++h) {
        const std::size_t g = h / static_cast<std::size_t>(config.heads / config.kv_heads);
        Row score(t + 1);
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < dim; ++i) {
            score[s] += q[t][h * dim + i] * k[s][g * dim + i];
          }
          score[s] = std::exp(score[s] / std::sqrt(static_cast<double>(dim)));
          sum += score[s];
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < dim; ++i) {
            mixed[h * dim + i] += score[s] / sum * v[s][g * dim + i];
          }
        }
      }
      const Row out = times(find(prefix + "attention.output"), mixed);
      for (std::size_t i = 0; i < out.size(); ++i) {
        x[t][i] += out[i];
      }
    }
    for (std::size_t t = 0; t < length; ++t) {
      const Row n = norm(x[t], find(prefix + "mlp.norm"), config.norm_eps);
      const Row gu = times(find(prefix + "mlp.gate_up"), n);
      Row a(gu.size() / 2);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = gu[i] / (1.0 + std::exp(-gu[i])) * gu[i + a.size()];
      }
      const Row out = times(find(prefix + "mlp.down"), a);
      for (std::size_t i = 0; i < out.size(); ++i) {
        x[t][i] += out[i];
      }
    }
  }
  double loss = 0;
  for (std::size_t t = 0; t < length; ++t) {
    const Row z = times(find("head"), norm(x[t], find("norm"), config.norm_eps));
    double sum = 0;
    for (const double value : z) {
      sum += std::exp(value);
    }
    loss += std::log(sum) - z[static_cast<std::size_t>(targets[t])];
  }
  return loss;
}

const std::vector<int> kTokens = {3, 1, 4, 1, 5, 9};
const std::vector<int> kTargets = {1, 4, 1, 5, 9, 2};

at::Tensor as_tensor(const std::vector<int>& values) {
  return at::tensor(values, at::kLong).view({1, -1});
}

void with_model(const ModelConfig& config, at::ScalarType dtype,
                const std::function<void(Transformer&)>& body) {
  const NoStrategy strategy;
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    Transformer model(config, 1, communicator, strategy, 7, dtype);
    body(model);
  });
}

TEST(Transformer, loss_is_the_naive_one) {
  const ModelConfig config = small_config();
  with_model(config, at::kDouble, [&](Transformer& model) {
    const double loss =
        model.loss(as_tensor(kTokens), as_tensor(kTargets), {}).cross_entropy.item<double>();
    const double expected = naive_loss(config, model.parameters(), kTokens, kTargets);
    EXPECT_NEAR(loss, expected, 1e-10 * expected);
  });
}

TEST(Transformer, gradients_are_the_naive_losses_differences) {
  const ModelConfig config = small_config();
  with_model(config, at::kDouble, [&](Transformer& model) {
    model.loss(as_tensor(kTokens), as_tensor(kTargets), {}).cross_entropy.backward();
    for (const Parameter& p : model.parameters()) {
      ASSERT_TRUE(p.value.grad().defined()) << p.name;
      const at::Tensor flat = p.value.detach().view({-1});
      const at::Tensor gradient = p.value.grad().view({-1});
      // A handful of elements of every parameter, at a stride that meets all heads.
      for (std::int64_t i = 1; i < flat.numel(); i += std::max<std::int64_t>(1, flat.numel() / 7)) {
        double* element = flat.data_ptr<double>() + i;
        const double value = *element;
        const double h = 1e-5;
        *element = value + h;
        const double up = naive_loss(config, model.parameters(), kTokens, kTargets);
        *element = value - h;
        const double down = naive_loss(config, model.parameters(), kTokens, kTargets);
        *element = value;
        EXPECT_NEAR(gradient[i].item<double>(), (up - down) / (2 * h), 1e-7)
            << p.name << "[" << i << "]";
      }
    }
  });
}

TEST(Transformer, weights_depend_on_seed_and_name_alone) {
  ModelConfig config = small_config();
  at::Tensor first;
  with_model(config, at::kFloat,
             [&](Transformer& model) { first = model.parameters().at(3).value.detach().clone(); });
  config.layers = 3;
  config.dense_layers = {0, 1, 2};
  with_model(config, at::kFloat, [&](Transformer& model) {
    EXPECT_TRUE(at::equal(first, model.parameters().at(3).value.detach()));
    for (const Parameter& p : model.parameters()) {
      EXPECT_EQ(p.decay, p.value.dim() == 2) << p.name;
    }
  });
}

TEST(Transformer, bfloat16_stays_near_fp32_and_keeps_fp32_weights) {
  const ModelConfig config = small_config();
  const auto loss_in = [&](at::ScalarType dtype) {
    double loss = 0;
    with_model(config, dtype, [&](Transformer& model) {
      const Transformer::Loss out = model.loss(as_tensor(kTokens), as_tensor(kTargets), {});
      EXPECT_EQ(out.cross_entropy.scalar_type(), at::kFloat);
      out.cross_entropy.backward();
      for (const Parameter& p : model.parameters()) {
        EXPECT_EQ(p.value.scalar_type(), at::kFloat);
        EXPECT_EQ(p.value.grad().scalar_type(), at::kFloat);
      }
      loss = out.cross_entropy.item<double>();
    });
    return loss;
  };
  const double exact = loss_in(at::kFloat);
  const double rounded = loss_in(at::kBFloat16);
  EXPECT_NE(exact, rounded);
  EXPECT_NEAR(rounded, exact, 0.02 * exact);
}

TEST(Transformer, a_rank_without_sequences_has_loss_zero) {
  with_model(small_config(), at::kFloat, [&](Transformer& model) {
    const at::Tensor none = at::empty({0, 8}, at::kLong);
    const Transformer::Loss out = model.loss(none, none, {});
    EXPECT_EQ(out.cross_entropy.item<double>(), 0.0);
    out.cross_entropy.backward();
  });
}

TEST(Blocks, attention_does_not_look_ahead) {
  const ModelConfig config = small_config();
  with_model(config, at::kDouble, [&](Transformer& model) {
    std::vector<int> other = kTokens;
    other.back() = 0;
    const at::Tensor a = model.logits(as_tensor(kTokens), {});
    const at::Tensor b = model.logits(as_tensor(other), {});
    const std::int64_t last = static_cast<std::int64_t>(kTokens.size()) - 1;
    EXPECT_TRUE(at::allclose(a.narrow(1, 0, last), b.narrow(1, 0, last), 1e-12, 1e-12));
    EXPECT_FALSE(at::allclose(a.select(1, last), b.select(1, last), 1e-3, 1e-3));
  });
}

}  // namespace
}  // namespace lrmoe::model
