// Estimates against the memory model's own sums.
#include "lrmoe/replay/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"

namespace lrmoe::replay {
namespace {

EstimateOptions options(const std::string& strategy = "lrmoe") {
  EstimateOptions o;
  o.shape = cost::find_shape("qwen3-30b-a3b", {});
  o.ranks = 8;
  o.tokens = 8 * 4096;
  o.strategy.name = strategy;
  return o;
}

std::int64_t fullest(const Estimate& e) {
  return plan::fullest(e.ranks).total();
}

TEST(Estimate, SharesHaveTheImbalanceThatWasAskedFor) {
  for (const double wanted : {1.0, 1.5, 4.0, 16.0}) {
    const std::vector<std::int64_t> shares = assumed_shares(128, wanted);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    EXPECT_NEAR(128 * static_cast<double>(shares[0]) / sum, wanted, 1e-3 * wanted);
    EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
  }
}

TEST(Estimate, WeightsAreThoseOfTheSlotsAndTheLayers) {
  const Estimate e = estimate(options("fixed"));
  const std::int64_t expert = std::int64_t{3} * 2048 * 768 * 2;
  for (const plan::MemoryTerms& terms : e.ranks) {
    EXPECT_EQ(terms.weights, 48 * 16 * expert);
    EXPECT_EQ(terms.gradients, terms.weights);
    EXPECT_GT(terms.activations, 0);
  }
  EXPECT_EQ(e.slots, 16);
  EXPECT_EQ(e.optimizer, 48 * 16 * expert / 2 * 12);
  EXPECT_EQ(e.routed, 8 * 4096 * 8);
  EXPECT_EQ(estimate(options("lrmoe")).slots, 18);
}

TEST(Estimate, AnUnevenDemandFillsARankOfFixedAndNotOfLrmoe) {
  EstimateOptions fixed = options("fixed");
  const std::int64_t even = fullest(estimate(fixed));
  fixed.imbalance = 4;
  EXPECT_GT(fullest(estimate(fixed)), even + even / 4);
  EstimateOptions lrmoe = options("lrmoe");
  const std::int64_t balanced = fullest(estimate(lrmoe));
  lrmoe.imbalance = 4;
  EXPECT_LT(fullest(estimate(lrmoe)), balanced + balanced / 10);
}

TEST(Estimate, TheLargestStepFitsAndALargerOneDoesNot) {
  EstimateOptions o = options();
  o.budget = std::int64_t{24} << 30;
  const Estimate e = estimate(o);
  ASSERT_GT(e.most_tokens, 0);
  EXPECT_EQ(e.most_tokens % 8, 0);
  o.tokens = e.most_tokens / 101 * 100 / 8 * 8;  // row counts are rounded up
  EXPECT_LE(fullest(estimate(o)), o.budget);
  o.tokens = e.most_tokens / 100 * 101 / 8 * 8;
  EXPECT_GT(fullest(estimate(o)), o.budget);
  o.budget = std::int64_t{1} << 30;  // less than the weights
  EXPECT_EQ(estimate(o).most_tokens, 0);
}

TEST(Estimate, TheSmallestBudgetIsNoMoreThanWhatIsNeeded) {
  const Estimate e = estimate(options());
  EXPECT_LE(e.smallest_budget, fullest(e));
  EXPECT_GT(e.smallest_budget, 2 * 48 * std::int64_t{16} * 3 * 2048 * 768 * 2);
}

TEST(Estimate, JsonAndTextSayWhatWasAssumed) {
  EstimateOptions o = options();
  o.imbalance = 2;
  o.budget = std::int64_t{40} << 30;
  const Estimate e = estimate(o);
  const auto json = to_json(e);
  EXPECT_EQ(json["format"], "lrmoe-estimate");
  EXPECT_EQ(json["memory"].size(), 8u);
  EXPECT_EQ(json["fullest"]["total"], fullest(e));
  EXPECT_EQ(json["imbalance"], 2.0);
  EXPECT_NE(to_text(e).find("the fullest expert has 2 times the mean"), std::string::npos);
  EXPECT_NE(to_text(e).find("48 MoE layers in flight"), std::string::npos);
}

TEST(Estimate, WhatCannotBeIsRefused) {
  EstimateOptions o = options();
  o.imbalance = 17;
  EXPECT_NE(testing::message_of<InputError>([&] { estimate(o); }).find("1 to 16"),
            std::string::npos);
  o = options();
  o.tokens = 7;
  EXPECT_NE(testing::message_of<InputError>([&] { estimate(o); }).find("--tokens 7"),
            std::string::npos);
  o = options();
  o.slots = 15;
  EXPECT_NE(testing::message_of<InputError>([&] { estimate(o); }).find("at least 16"),
            std::string::npos);
}

}  // namespace
}  // namespace lrmoe::replay
