// The model with MoE layers: the same function on any number of ranks.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "lrmoe/comm/threads.h"
#include "lrmoe/train/replica.h"

namespace lrmoe::train {
namespace {

Config tiny_config(int ranks) {
  Config config;
  config.model.vocabulary = 32;
  config.model.layers = 3;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.experts = 8;
  config.model.top_k = 2;
  config.model.expert_width = 12;
  config.model.shared_experts = 1;
  config.model.dense_layers = {0};
  config.model.sequence = 8;
  config.model.init_std = 0.2;
  config.parallel.ranks = ranks;
  config.parallel.slots = (8 + ranks - 1) / ranks;
  return config;
}

struct Sums {
  double loss = 0;
  double aux = 0;
  double dense_square = 0;
  double expert_square = 0;
};

// Loss and gradient norms of 5 sequences (an odd share for 2 and 4 ranks).
Sums run_model(const Config& config) {
  const auto strategy = plan::make_strategy(config.strategy);
  const at::Tensor tokens = (at::arange(45, at::kLong) * 7 % 31).view({5, 9});
  Sums sums;
  std::mutex mutex;
  at::set_num_threads(1);
  comm::run_ranks(config.parallel.ranks, [&](comm::Communicator& communicator) {
    Replica replica(config, *strategy, communicator);
    const std::int64_t begin = 5 * communicator.rank() / communicator.size();
    const std::int64_t end = 5 * (communicator.rank() + 1) / communicator.size();
    const at::Tensor mine = tokens.slice(0, begin, end);
    const auto out = replica.model.loss(mine.slice(1, 0, 8), mine.slice(1, 1, 9), {});
    (out.cross_entropy + out.aux).backward();
    replica.dense.reduce(communicator);
    double square = 0;
    for (std::size_t i = 0; i < replica.experts.size(); ++i) {
      replica.experts[i].reduce(replica.model.moe_layers()[i]->slots());
      square += replica.experts[i].gradient_square();
    }
    const std::lock_guard lock(mutex);
    sums.loss += out.cross_entropy.item<double>();
    sums.aux += out.aux.item<double>();
    sums.dense_square = replica.dense.gradient_square();
    sums.expert_square += square;
  });
  return sums;
}

class MoeModel : public testing::TestWithParam<std::tuple<int, std::string, model::RouterKind>> {};

TEST_P(MoeModel, is_the_same_function_on_any_number_of_ranks) {
  const auto& [ranks, strategy, router] = GetParam();
  Config one = tiny_config(1);
  one.model.router = router;
  Config many = tiny_config(ranks);
  many.model.router = router;
  many.strategy.name = strategy;
  many.parallel.slots += 1;
  const Sums expected = run_model(one);
  const Sums sums = run_model(many);
  EXPECT_GT(expected.aux, 1.0);  // two layers, each at least about 1
  EXPECT_GT(expected.expert_square, 0.0);
  EXPECT_NEAR(sums.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(sums.aux, expected.aux, 1e-5 * expected.aux);
  EXPECT_NEAR(sums.dense_square, expected.dense_square, 1e-4 * expected.dense_square);
  EXPECT_NEAR(sums.expert_square, expected.expert_square, 1e-4 * expected.expert_square);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, MoeModel,
    testing::Combine(testing::Values(1, 2, 4, 8), testing::Values("fixed", "symi"),
                     testing::Values(model::RouterKind::softmax, model::RouterKind::sigmoid)));

}  // namespace
}  // namespace lrmoe::train
