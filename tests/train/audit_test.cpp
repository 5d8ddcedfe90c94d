// The gradient audit: right where nothing is left out, of the size that the plan
// predicts where pairs are sampled, and without a trace in the run.
#include <gtest/gtest.h>

#include <cmath>

#include "lrmoe/base/output_file.h"
#include "lrmoe/train/metrics.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

std::vector<StepMetrics> run(const Config& config, const TemporaryFolder& folder,
                             const std::string& name) {
  train(options_for(config, folder, name));
  return read_metrics(folder / (name + "/metrics.jsonl"));
}

struct Means {
  double experts = 0, experts_square = 0, router = 0, dense = 0, cosine = 0, variance = 0;
};

// Over the audits of a run and its layers. `skip`: steps at the start left out.
Means means(const std::vector<StepMetrics>& steps, std::int64_t skip) {
  Means m;
  double count = 0;
  for (const StepMetrics& step : steps) {
    if (!step.audit || step.step <= skip) {
      continue;
    }
    for (std::size_t i = 0; i < step.layers.size(); ++i) {
      const LayerAudit& layer =
          step.audit->layers.at(static_cast<std::size_t>(step.layer_index[i]));
      m.experts += layer.experts->relative_error;
      m.experts_square += std::pow(layer.experts->relative_error, 2);
      m.cosine += layer.experts->cosine;
      m.router += layer.router->relative_error;
      m.dense += layer.dense.relative_error;
      m.variance += step.layers[i].added_variance;
      ++count;
    }
  }
  EXPECT_GT(count, 0);
  for (double* x : {&m.experts, &m.experts_square, &m.router, &m.dense, &m.cosine, &m.variance}) {
    *x /= count;
  }
  return m;
}

class Traceless : public testing::TestWithParam<std::string> {};

TEST_P(Traceless, a_run_with_audits_has_the_bits_of_one_without) {
  const TemporaryFolder folder;
  Config config = with_strategy(tiny_config(folder, 2), GetParam());
  config.train.accumulation = 2;
  config.train.steps = 6;
  const auto without = run(config, folder, "without");
  config.lrmoe.audit_every = 2;
  const auto with = run(config, folder, "with");
  ASSERT_EQ(with.size(), without.size());
  for (std::size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i].audit.has_value(), with[i].step % 2 == 0);
    EXPECT_FALSE(without[i].audit.has_value());
    EXPECT_EQ(with[i].loss, without[i].loss);
    EXPECT_EQ(with[i].aux_loss, without[i].aux_loss);
    EXPECT_EQ(with[i].grad_norm, without[i].grad_norm);
    EXPECT_EQ(with[i].bytes_update, without[i].bytes_update);
    for (std::size_t l = 0; l < with[i].layers.size(); ++l) {
      const MoeMetrics& a = with[i].layers[l];
      const MoeMetrics& b = without[i].layers[l];
      EXPECT_EQ(a.retained_ratio, b.retained_ratio);
      EXPECT_EQ(a.added_variance, b.added_variance);
      EXPECT_EQ(a.imbalance_forward, b.imbalance_forward);
      EXPECT_EQ(a.imbalance_backward, b.imbalance_backward);
      EXPECT_EQ(a.bytes_forward, b.bytes_forward);
      EXPECT_EQ(a.bytes_backward, b.bytes_backward);
      EXPECT_EQ(a.dropped_pairs, b.dropped_pairs);
      EXPECT_EQ(a.memory_peak_bytes, b.memory_peak_bytes);
    }
  }
  int compared = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "with/step-6")) {
    const std::string name = entry.path().filename().string();
    if (name != "state.json") {  // it holds the configuration
      EXPECT_EQ(read_text(entry.path()), read_text(folder / ("without/step-6/" + name))) << name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Audit, Traceless,
                         testing::Values("lrmoe:ratio=0.25",
                                         "lrmoe:ratio=0.3:activations=recompute:shortlist=0.6",
                                         "lrmoe:ratio=0.25:variance_limit=1",
                                         "symi:capacity_factor=1", "fixed"),
                         [](const auto& strategy) {
                           std::string name;
                           for (const char c : strategy.param) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

TEST(Audit, keep_all_agrees_with_itself) {
  const TemporaryFolder folder;
  for (const std::string strategy : {"lrmoe:ratio=1", "fixed", "symi:capacity_factor=inf"}) {
    Config config = with_strategy(tiny_config(folder, 2), strategy);
    config.train.steps = 3;
    config.lrmoe.audit_every = 1;
    for (const StepMetrics& step : run(config, folder, strategy.substr(0, 5))) {
      ASSERT_TRUE(step.audit);
      ASSERT_EQ(step.audit->layers.size(), 2U);
      for (const LayerAudit& layer : step.audit->layers) {
        ASSERT_TRUE(layer.experts && layer.router);
        for (const Agreement& a : {*layer.experts, *layer.router, layer.dense}) {
          EXPECT_NEAR(a.cosine, 1, 1e-9);
          EXPECT_LT(a.relative_error, 1e-6);
        }
      }
      EXPECT_NEAR(step.audit->rest.cosine, 1, 1e-9);
      EXPECT_LT(step.audit->rest.relative_error, 1e-6);
    }
  }
}

TEST(Audit, dense_layers_have_no_experts) {
  const TemporaryFolder folder;
  Config config = with_strategy(tiny_config(folder, 2), "lrmoe:ratio=0.25");
  config.model.dense_layers = {0};
  config.train.steps = 2;
  config.lrmoe.audit_every = 2;
  const Audit audit = run(config, folder, "run").back().audit.value();
  ASSERT_EQ(audit.layers.size(), 2U);
  EXPECT_FALSE(audit.layers[0].experts || audit.layers[0].router);
  EXPECT_TRUE(audit.layers[1].experts && audit.layers[1].router);
  EXPECT_GT(audit.layers[0].dense.relative_error, 0);  // by way of dx
  EXPECT_GT(audit.rest.relative_error, 0);             // the embedding; the head's is exact
}

// What a capacity drops is in the error too: the audit's pass drops nothing.
TEST(Audit, sees_dropped_pairs) {
  const TemporaryFolder folder;
  Config config = with_strategy(tiny_config(folder, 2), "symi:capacity_factor=0.5");
  config.train.steps = 2;
  config.lrmoe.audit_every = 1;
  EXPECT_GT(means(run(config, folder, "run"), 0).experts, 0.1);
}

TEST(Audit, the_error_is_what_the_plan_predicts_and_falls_with_the_ratio) {
  const TemporaryFolder folder;
  std::vector<Means> found;
  for (const std::string ratio : {"0.15", "0.3", "0.6"}) {
    Config config = with_strategy(tiny_config(folder, 2), "lrmoe:ratio=" + ratio);
    config.train.steps = 40;
    config.lrmoe.audit_every = 1;
    const Means m = means(run(config, folder, ratio), 10);  // once the curves are known
    // Where the pairs' contributions add up like noise, the error's square is the
    // added variance; they have a mean too, so it is less. Measured: 0.6 of it.
    EXPECT_LT(m.experts_square, 1.5 * m.variance) << ratio;
    EXPECT_GT(m.experts_square, m.variance / 5) << ratio;
    // An unbiased estimate's cosine follows from its error.
    EXPECT_NEAR(m.cosine, 1 / std::sqrt(1 + m.experts_square), 0.1) << ratio;
    found.push_back(m);
  }
  for (std::size_t i = 1; i < found.size(); ++i) {
    EXPECT_LT(found[i].experts, found[i - 1].experts);
    EXPECT_LT(found[i].router, found[i - 1].router);
    EXPECT_GT(found[i].cosine, found[i - 1].cosine);
    EXPECT_GT(found[i].experts, 0);
  }
  EXPECT_LT(found.back().dense, found.front().dense);
}

}  // namespace
}  // namespace lrmoe::train
