// Estimates against the memory model's own sums.
#include "lrmoe/replay/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/tables.h"
#include "lrmoe/replay/memory.h"
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

/// The plan of a run in that budget, made as a trainer makes it.
plan::Plan run_within(const EstimateOptions& o, std::int64_t budget) {
  plan::StrategyOptions own = o.strategy;
  own.memory = {budget, 1, 64, memory_model(o.strategy, o.shape, 1)};
  own.memory.model.activations = plan::activations_of(o.strategy);
  const auto strategy = plan::make_strategy(own);
  const plan::Cluster cluster{8, 128, 18, 8, 0};
  const plan::Counts demand(8, 128, 4096 * 8 / 128);
  const auto placement = strategy->place(cluster, demand, strategy->initial(cluster));
  return strategy->route({cluster, demand, placement});
}

TEST(Estimate, InABudgetItSaysWhatThePlannerWouldGiveUp) {
  EstimateOptions o = options();
  o.layers_in_flight = 1;  // so that tokens count beside the weights
  EXPECT_FALSE(estimate(o).within.has_value());
  o.budget = std::int64_t{400} << 30;
  const Estimate roomy = estimate(o);
  ASSERT_TRUE(roomy.within.has_value());
  EXPECT_EQ(roomy.within->notes, std::vector<std::string>());
  EXPECT_EQ(roomy.within->slots, 18);
  EXPECT_EQ(roomy.within->bytes, fullest(roomy));  // the planner counts as the table does
  EXPECT_NE(to_text(roomy).find("nothing is given up"), std::string::npos);

  int most_chunks = 1;
  std::int64_t budget = 0;
  for (budget = roomy.within->bytes - 1; budget > 0; budget -= budget / 32) {
    o.budget = budget;
    const Estimate e = estimate(o);
    const WithinBudget& w = *e.within;
    if (!w.refused.empty()) {
      break;
    }
    const plan::Plan plan = run_within(o, budget);
    EXPECT_EQ(w.notes, plan.notes);
    ASSERT_EQ(w.notes.size(), 1U);
    EXPECT_EQ(w.notes[0].find(" of 18 slots a rank") != std::string::npos, w.slots < 18);
    EXPECT_EQ(w.activations, plan.activations);
    EXPECT_EQ(w.chunks, plan.chunks);
    EXPECT_EQ(w.kept, plan::total_pairs(plan.quota));
    EXPECT_LE(w.bytes, budget);
    EXPECT_FALSE(w.notes.empty());
    for (const std::string& note : w.notes) {
      EXPECT_NE(to_text(e).find("note: " + note), std::string::npos);
    }
    most_chunks = std::max(most_chunks, w.chunks);
    EXPECT_EQ(to_json(e)["within_budget"]["notes"], w.notes);
  }
  EXPECT_GT(most_chunks, 1);

  // The end: the run's own error, and the budget that it names does.
  o.budget = budget;
  const std::string refused = estimate(o).within->refused;
  EXPECT_EQ(refused, testing::message_of<InputError>([&] { run_within(o, budget); }));
  const std::string words = "smallest budget that would do: ";
  ASSERT_NE(refused.find(words), std::string::npos) << refused;
  o.budget = std::stoll(refused.substr(refused.find(words) + words.size()));
  EXPECT_EQ(estimate(o).within->refused, "");
  EXPECT_LE(estimate(o).within->kept, roomy.kept);
  --o.budget;
  EXPECT_NE(estimate(o).within->refused, "");
  // Others do not plan within a budget.
  o.strategy.name = "symi";
  EXPECT_FALSE(estimate(o).within.has_value());
}

TEST(Estimate, ReplicasStayWhereComputingAgainMakesRoomForThem) {
  EstimateOptions o = options();
  o.ranks = 16;
  o.tokens = 262144;
  o.budget = 40'000'000'000;
  o.strategy.lrmoe.activations = plan::Activations::keep;
  const WithinBudget kept = *estimate(o).within;
  EXPECT_EQ(kept.slots, 10);
  EXPECT_EQ(kept.activations, plan::Activations::recompute);
  EXPECT_EQ(kept.chunks, 1);
  EXPECT_EQ(kept.notes, std::vector<std::string>(
                            {"to fit the memory budget of 37.3 GiB: activations are computed "
                             "again"}));
  o.strategy.lrmoe.activations = plan::Activations::recompute;
  EXPECT_EQ(estimate(o).within->bytes, kept.bytes);
}

TEST(Estimate, TheChunksThatAreSetAreNotGivenUp) {
  EstimateOptions o = options();
  o.layers_in_flight = 1;
  o.chunks = 8;
  const std::int64_t needed = fullest(estimate(o));
  o.budget = needed;
  const WithinBudget w = *estimate(o).within;
  EXPECT_EQ(w.chunks, 8);
  EXPECT_EQ(w.slots, 18);
  EXPECT_EQ(w.bytes, needed);
  EXPECT_TRUE(w.notes.empty());
}

TEST(Estimate, AShortlistKeepsItsShareOfTheActivations) {
  EstimateOptions o = options();
  o.strategy.lrmoe.activations = plan::Activations::keep;
  const Estimate whole = estimate(o);
  o.strategy.lrmoe.shortlist = 0.4;
  const Estimate listed = estimate(o);
  EXPECT_NEAR(static_cast<double>(listed.kept), static_cast<double>(whole.kept), 1);
  const auto activations = [](const Estimate& e) {
    return static_cast<double>(plan::fullest(e.ranks).activations);
  };
  EXPECT_LT(activations(listed), 0.75 * activations(whole));
  EXPECT_GT(activations(listed), 0.4 * activations(whole));
  // By output all pairs' activations stay until it is known.
  o.strategy.lrmoe.shortlist_by = plan::ShortlistBy::output;
  EXPECT_GE(activations(estimate(o)), activations(whole));
  // The planner counts as the table does.
  o.strategy.lrmoe.shortlist_by = plan::ShortlistBy::gate;
  o.budget = fullest(listed);
  const WithinBudget w = *estimate(o).within;
  EXPECT_EQ(w.bytes, o.budget);
  EXPECT_EQ(w.slots, 18);
  EXPECT_TRUE(w.notes.empty());
}

TEST(Estimate, TheSmallestBudgetTakesThePlannersMostChunks) {
  EstimateOptions o = options();
  o.layers_in_flight = 1;
  const Estimate e = estimate(o);
  o.strategy.lrmoe.activations = plan::Activations::recompute;
  o.slots = 16;
  o.chunks = plan::MemoryBudget().most_chunks;
  EXPECT_EQ(e.smallest_budget, fullest(estimate(o)));
  EXPECT_NE(to_text(e).find("(recompute, 64 chunks, no replicas)"), std::string::npos);
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
