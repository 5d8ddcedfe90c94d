// What an export asks of a model: weights from slots and from master shards, gradients
// summed over ranks, all under their names.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "lrmoe/base/safetensors.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/train/export_values.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

Config small_config(int ranks) {
  Config config;
  config.model.vocabulary = 32;
  config.model.layers = 2;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.experts = 6;
  config.model.top_k = 2;
  config.model.expert_width = 10;
  config.model.shared_experts = 1;
  config.model.dense_layers = {0};
  config.model.router = model::RouterKind::sigmoid;
  config.model.sequence = 8;
  config.model.init_std = 0.2;
  config.parallel.ranks = ranks;
  config.strategy.name = "lrmoe";
  return config;
}

enum class What { slots, masters, gradients };

// All tensors of the file that an export of a fresh model writes, one after the other.
std::map<std::string, std::vector<float>> exported(int ranks, What what) {
  const testing::TemporaryFolder folder;
  const Config config = small_config(ranks);
  const auto strategy = plan::make_strategy(config.strategy);
  const at::Tensor tokens = (at::arange(45, at::kLong) * 7 % 31).view({5, 9});
  at::set_num_threads(1);
  comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
    Replica replica(config, *strategy, communicator);
    const std::int64_t begin = 5 * communicator.rank() / communicator.size();
    const std::int64_t end = 5 * (communicator.rank() + 1) / communicator.size();
    const at::Tensor mine = tokens.slice(0, begin, end);
    moe::StepInfo info;
    info.keep_all = true;
    replica.model.loss(mine.slice(1, 0, 8), mine.slice(1, 1, 9), info).cross_entropy.backward();
    model::HfValues values;
    switch (what) {
      case What::slots:
        values = model::weights_of(replica.model, communicator);
        break;
      case What::masters:
        values = masters_of(replica);
        break;
      case What::gradients:
        values = model::gradients_of(replica.model, communicator);
    }
    model::write_hf_tensors(folder / "all.safetensors", config.model, values, communicator);
  });
  std::map<std::string, std::vector<float>> out;
  const safetensors::Reader reader(folder / "all.safetensors");
  for (const safetensors::Tensor& tensor : reader.tensors()) {
    std::vector<float>& numbers = out[tensor.name];
    numbers.resize(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return out;
}

TEST(ExportValues, weights_are_the_same_from_slots_and_shards_on_any_ranks) {
  const auto one = exported(1, What::slots);
  EXPECT_TRUE(one.contains("layers.0.mlp.gate_up"));
  EXPECT_TRUE(one.contains("layers.1.shared.down"));
  EXPECT_EQ(one.at("layers.1.experts.5.gate_up").size(), 2U * 10 * 16);
  EXPECT_EQ(one.at("layers.1.experts.5.down").size(), 16U * 10);
  EXPECT_NE(one.at("layers.1.experts.5.down"), one.at("layers.1.experts.4.down"));
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(exported(ranks, What::slots), one) << ranks;
    EXPECT_EQ(exported(ranks, What::masters), one) << ranks;
  }
}

TEST(ExportValues, gradients_are_summed_over_ranks) {
  const auto one = exported(1, What::gradients);
  const auto three = exported(3, What::gradients);
  ASSERT_EQ(one.size(), three.size());
  double square = 0;
  for (const auto& [name, numbers] : one) {
    const std::vector<float>& others = three.at(name);
    ASSERT_EQ(numbers.size(), others.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      square += double{numbers[i]} * double{numbers[i]};
      ASSERT_NEAR(numbers[i], others[i], 1e-4F) << name;
    }
  }
  EXPECT_GT(square, 1.0);
}

}  // namespace
}  // namespace lrmoe::train
