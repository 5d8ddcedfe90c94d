// Frozen parts keep their bits, have no optimizer state and are not reduced; the rest
// gets the gradients that it had with everything trained.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "lrmoe/train/checkpoint_tensors.h"
#include "lrmoe/train/config_freeze.h"
#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

Config frozen_config(const TemporaryFolder& folder, std::vector<std::string> freeze,
                     std::vector<std::string> train_only = {}) {
  Config config = tiny_config(folder, 2);
  config.model.layers = 3;
  config.model.dense_layers = {0};
  config.model.router = model::RouterKind::sigmoid;  // with a bias that training moves
  config.train.steps = 3;
  config.train.freeze = std::move(freeze);
  config.train.train_only = std::move(train_only);
  return config;
}

std::string part_in_checkpoint(const std::string& name) {
  return name.find(".experts") != std::string::npos ? "experts" : part_of(name);
}

// A checkpoint's tensors by name, and the parts that have moments.
struct Saved {
  std::map<std::string, at::Tensor> values;
  std::set<std::string> with_moments;
  std::uintmax_t bytes = 0;
};

void read_file(const std::filesystem::path& path, const std::string& prefix, Saved& saved) {
  const safetensors::Reader file(path);
  saved.bytes += std::filesystem::file_size(path);
  for (const safetensors::Tensor& tensor : file.tensors()) {
    if (tensor.name.ends_with(".moment")) {
      saved.with_moments.insert(part_in_checkpoint(tensor.name.substr(0, tensor.name.size() - 7)));
    } else if (!tensor.name.ends_with(".square") && !tensor.name.ends_with("score_curves")) {
      at::Tensor copy = at::empty({static_cast<std::int64_t>(tensor.bytes.size())}, at::kByte);
      std::memcpy(copy.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
      saved.values[prefix + tensor.name] = copy;
    }
  }
}

Saved read_checkpoint(const std::filesystem::path& folder) {
  Saved saved;
  read_file(folder / "model.safetensors", "", saved);
  for (int r = 0; r < 2; ++r) {
    const std::string rank = std::to_string(r);
    read_file(folder / ("experts-" + rank + "-of-2.safetensors"), rank + ".", saved);
  }
  return saved;
}

// Weights after the first step and after the third.
std::pair<Saved, Saved> train_frozen(Config config, const TemporaryFolder& folder,
                                     const std::string& name) {
  config.train.checkpoint_every = 1;
  config.train.keep = 10;
  config.train.evaluate_every = 0;
  train(options_for(config, folder, name));
  Saved last = read_checkpoint(folder / (name + "/step-3"));
  return {read_checkpoint(folder / (name + "/step-1")), std::move(last)};
}

class Freeze : public testing::TestWithParam<std::string> {};

TEST_P(Freeze, a_frozen_part_keeps_its_bits_and_has_no_moments) {
  const TemporaryFolder folder;
  const Config config = frozen_config(folder, {GetParam()});
  const auto [first, last] = train_frozen(config, folder, "run");
  int frozen = 0;
  for (const auto& [name, value] : last.values) {
    const bool same = at::equal(value, first.values.at(name));
    if (part_in_checkpoint(name) == GetParam()) {
      EXPECT_TRUE(same) << name;
      ++frozen;
    } else {
      EXPECT_FALSE(same) << name;
    }
  }
  EXPECT_GT(frozen, 0);
  EXPECT_FALSE(last.with_moments.contains(GetParam()));
  EXPECT_EQ(last.with_moments.size(), 7U);  // of eight parts
}

INSTANTIATE_TEST_SUITE_P(Parts, Freeze,
                         testing::Values("embedding", "attention", "norms", "router", "experts",
                                         "shared", "dense", "head"));

class TrainOnly : public testing::TestWithParam<std::string> {};

TEST_P(TrainOnly, the_rest_keeps_its_bits_with_any_strategy) {
  const TemporaryFolder folder;
  for (const std::string strategy : {"fixed", "lrmoe"}) {
    Config config = frozen_config(folder, {}, {GetParam()});
    config.strategy.name = strategy;
    config.train.clip = 0;
    config.lrmoe.audit_every = 2;
    const auto [first, last] = train_frozen(config, folder, strategy);
    int trained = 0;
    for (const auto& [name, value] : last.values) {
      const bool same = at::equal(value, first.values.at(name));
      if (part_in_checkpoint(name) == GetParam()) {
        trained += same ? 0 : 1;
      } else {
        EXPECT_TRUE(same) << name;
      }
    }
    EXPECT_GT(trained, 0);
    for (const StepMetrics& m : read_metrics(folder / (strategy + "/metrics.jsonl"))) {
      EXPECT_EQ(m.audit.has_value(), m.step == 2);
      if (GetParam() == "head") {
        EXPECT_EQ(m.moe.bytes_backward, 0);  // nothing below the head has a backward pass
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, TrainOnly, testing::Values("experts", "router", "head"));

TEST(Frozen, the_first_step_of_what_is_trained_is_the_same) {
  const TemporaryFolder folder;
  Config all = frozen_config(folder, {});
  all.train.clip = 0;
  all.train.steps = 1;
  Config some = all;
  some.train.freeze = {"embedding", "attention", "router"};
  train(options_for(all, folder, "all"));
  train(options_for(some, folder, "some"));
  const Saved whole = read_checkpoint(folder / "all/step-1");
  const Saved part = read_checkpoint(folder / "some/step-1");
  for (const auto& [name, value] : part.values) {
    const std::string of = part_in_checkpoint(name);
    if (of == "experts" || of == "shared" || of == "head" || of == "dense") {
      EXPECT_TRUE(at::equal(value, whole.values.at(name))) << name;
    }
  }
  EXPECT_LT(part.bytes, whole.bytes);
}

TEST(Frozen, experts_send_no_gradients_and_the_run_resumes_to_the_same_bits) {
  const TemporaryFolder folder;
  Config config = frozen_config(folder, {"experts"});
  config.strategy.name = "lrmoe";
  config.train.steps = 6;
  const TrainResult straight = train(options_for(config, folder, "straight"));
  TrainOptions options = options_for(config, folder, "stopped");
  options.stop = [](const TrainResult& result) { return result.steps == 3; };
  train(options);
  options.stop = nullptr;
  options.resume = true;
  const TrainResult resumed = train(options);
  ASSERT_EQ(resumed.losses.size(), 3U);
  EXPECT_EQ(resumed.losses.back(), straight.losses.back());
  const Saved a = read_checkpoint(folder / "straight/step-6");
  const Saved b = read_checkpoint(folder / "stopped/step-6");
  for (const auto& [name, value] : a.values) {
    EXPECT_TRUE(at::equal(value, b.values.at(name))) << name;
  }
  Config whole = config;
  whole.train.freeze.clear();
  train(options_for(whole, folder, "whole"));
  const auto frozen_bytes = read_metrics(folder / "straight/metrics.jsonl").back().bytes_update;
  const auto bytes = read_metrics(folder / "whole/metrics.jsonl").back().bytes_update;
  EXPECT_LT(frozen_bytes, bytes * 3 / 4);  // weights travel to the next placement, gradients do not
}

}  // namespace
}  // namespace lrmoe::train
