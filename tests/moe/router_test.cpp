#include "lrmoe/moe/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lrmoe::moe {
namespace {

model::MoeConfig grouped(int groups, int top_groups) {
  model::MoeConfig config;
  config.hidden = 8;
  config.experts = 8;
  config.top_k = 2;
  config.router = model::RouterKind::sigmoid;
  config.groups = groups;
  config.top_groups = top_groups;
  return config;
}

// Logits are x itself, so that a test can say what they are.
Routing routed(const std::vector<float>& logits, const at::Tensor& bias,
               const model::MoeConfig& config) {
  const at::Tensor x = at::tensor(logits).view({1, 8});
  return route(x, at::eye(8), bias, config);
}

std::vector<std::int64_t> chosen(const Routing& routing) {
  const at::Tensor sorted = std::get<0>(routing.ids.flatten().sort());
  return {sorted.const_data_ptr<std::int64_t>(),
          sorted.const_data_ptr<std::int64_t>() + sorted.numel()};
}

TEST(Router, a_group_is_judged_by_its_best_two) {
  // The single best expert (0) is in a group whose second is poor.
  const std::vector<float> logits{4, -9, 3, 3, 0, 0, 0, 0};
  EXPECT_EQ(chosen(routed(logits, {}, grouped(1, 1))), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(chosen(routed(logits, {}, grouped(4, 1))), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(chosen(routed(logits, {}, grouped(4, 4))), (std::vector<std::int64_t>{0, 2}));
}

TEST(Router, the_bias_chooses_and_does_not_weigh) {
  const std::vector<float> logits{1, 2, 0, 0, 0, 0, 0, 0};
  const at::Tensor bias = at::zeros({8});
  bias[6] = 2.0;
  bias[7] = 2.0;
  const Routing routing = routed(logits, bias, grouped(1, 1));
  EXPECT_EQ(chosen(routing), (std::vector<std::int64_t>{6, 7}));
  EXPECT_NEAR(routing.gates[0][0].item<float>(), 0.5, 1e-6);
}

TEST(Router, logits_in_the_models_dtype) {
  model::MoeConfig config = grouped(1, 1);
  config.router = model::RouterKind::softmax;
  const at::Tensor weight = at::eye(8) * 1.00390625F;  // rounds to 1 in bf16
  const at::Tensor x = at::full({1, 8}, 1.0F).to(at::kBFloat16);
  x[0][1] = 0.0;
  const auto share = [&](model::RouterDtype dtype) {
    config.router_dtype = dtype;
    const Routing routing = route(x, weight, {}, config);
    EXPECT_EQ(routing.gates.scalar_type(), at::kFloat);
    return routing.share[0][1].item<float>();
  };
  EXPECT_FLOAT_EQ(share(model::RouterDtype::model), 1 / (1 + 7 * std::exp(1.0F)));
  EXPECT_FLOAT_EQ(share(model::RouterDtype::full), 1 / (1 + 7 * std::exp(1.00390625F)));
}

}  // namespace
}  // namespace lrmoe::moe
