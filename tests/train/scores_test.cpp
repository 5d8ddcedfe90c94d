// The metric on a trained layer: `update-norm`, which needs 8 bytes a pair, ranks
// the pairs as their exact contributions do.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lrmoe/comm/threads.h"
#include "lrmoe/train/batch.h"
#include "lrmoe/train/checkpoint.h"
#include "tests/train/real_text.h"

namespace lrmoe::train {
namespace {

using testing_runs::options_for;
using testing_runs::TemporaryFolder;

/// Each value's place in the order; equal ones share the mean of theirs.
std::vector<double> ranks_of(const std::vector<float>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return ranks;
}

double spearman(const std::vector<float>& a, const std::vector<float>& b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

Config scored_config(const TemporaryFolder& folder) {
  Config config = testing_runs::small_config();
  config.data.path = testing_runs::real_text(folder);
  config.train.steps = 60;
  config.strategy.name = "lrmoe";
  return config;
}

/// The scores of all pairs in the next step of a trained model, layer by layer.
/// The guard keeps every pair, so that delta is the same for all metrics.
std::vector<std::vector<float>> scores(Config config, const Checkpoint& checkpoint,
                                       plan::Metric metric) {
  config.strategy.lrmoe.metric = metric;
  config.strategy.lrmoe.variance_limit = 1e-9;
  const auto strategy = plan::make_strategy(config.strategy);
  const auto data = open_data(config.data, config.model.sequence, config.model.vocabulary);
  std::vector<std::vector<float>> found;
  comm::run_ranks(1, [&](comm::Communicator& communicator) {
    Replica replica(config, *strategy, communicator);
    load_checkpoint(replica, config, checkpoint);
    found.resize(replica.experts.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      replica.model.moe_layers()[i]->watch_scores(
          [&out = found[i]](std::span<const float> s) { out.assign(s.begin(), s.end()); });
    }
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < 16; ++i) {
      places.push_back(data->pick(config.train.seed, {replica.steps, i, 16}));
    }
    const Batch batch = make_batch(*data, places, config.model.sequence);
    const auto loss = replica.model.loss(batch.tokens, batch.targets, {replica.steps, 0});
    loss.cross_entropy.backward();
    for (const auto& layer : replica.model.moe_layers()) {
      EXPECT_TRUE(layer->plans().at(0).keep_all);
    }
  });
  return found;
}

TEST(Scores, update_norm_ranks_the_pairs_of_a_trained_layer_as_exact_does) {
  const TemporaryFolder folder;
  const Config config = scored_config(folder);
  const TrainResult trained = train(options_for(config, folder, "run"));
  EXPECT_LT(trained.losses.back(), 3.5);  // of 5.5: it has learnt something
  const Checkpoint checkpoint = newest_checkpoint(folder / "run").value();
  const auto exact = scores(config, checkpoint, plan::Metric::exact);
  const auto estimate = scores(config, checkpoint, plan::Metric::update_norm);
  const auto gate = scores(config, checkpoint, plan::Metric::gate);
  ASSERT_EQ(exact.size(), 3U);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(exact[i].size(), 2048U);
    ASSERT_EQ(estimate[i].size(), 2048U);
    EXPECT_GT(spearman(estimate[i], exact[i]), 0.95) << "layer " << i;
    EXPECT_LT(spearman(gate[i], exact[i]), spearman(estimate[i], exact[i])) << "layer " << i;
  }
}

}  // namespace
}  // namespace lrmoe::train
