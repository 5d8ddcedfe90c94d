// The estimate of attention, dense layers, embedding and head.
#include "lrmoe/cost/rest.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "lrmoe/base/error.h"

namespace lrmoe::cost {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ClockOptions options_of(double flops, double memory, double link) {
  ClockOptions options;
  options.profile.peak_flops = flops;
  options.profile.gemm = {{1, 1.0}};
  options.profile.memory_bandwidth = memory;
  options.profile.intra = options.profile.inter = {link, 0};
  options.shape = {"own", 8, 4, 4, 2, 1, 2};
  return options;
}

Rest small_rest() {
  Rest rest;
  rest.layers = 2;
  rest.attention = 100;
  rest.queries = 16;
  rest.qkv = 32;
  rest.shared = 50;
  rest.dense = 70;
  rest.vocabulary = 10;
  return rest;
}

TEST(Rest, FlopsAreThoseOfParametersAndScores) {
  const RestWork work{1, 1, 20, 1};
  const std::vector<std::int64_t> tokens = {64};
  const RestSeconds s =
      price_rest(work, tokens, small_rest(), options_of(1e9, kInfinity, kInfinity));
  const double projections = 2 * 64 * (2 * 100 + (4 * 8 + 50) + 70 + 10 * 8);
  const double scores = 2 * (2 * 64 * 10 * 16);
  EXPECT_DOUBLE_EQ(s.forward, (projections + scores) / 1e9);
  EXPECT_DOUBLE_EQ(s.backward, (2 * projections + 2.5 * scores) / 1e9);
  EXPECT_EQ(s.update, 0);
}

TEST(Rest, MicroBatchesAndScaleMultiplyTokens) {
  const RestWork work{1, 1, 20, 1};
  ClockOptions options = options_of(1e9, kInfinity, kInfinity);
  const std::vector<std::int64_t> one = {64}, three = {64, 0, 64, 64};
  const double once = price_rest(work, one, small_rest(), options).forward;
  EXPECT_DOUBLE_EQ(price_rest(work, three, small_rest(), options).forward, 3 * once);
  options.scale = 3;
  EXPECT_DOUBLE_EQ(price_rest(work, one, small_rest(), options).forward, 3 * once);
}

TEST(Rest, ASliceOfAModelHasItsShareOfTheHead) {
  const std::vector<std::int64_t> tokens = {64};
  const ClockOptions options = options_of(1e9, kInfinity, kInfinity);
  Rest without = small_rest();
  without.vocabulary = 0;
  const auto head = [&](int moe_layers) {
    const RestWork work{moe_layers, 0, 20, 1};
    return price_rest(work, tokens, small_rest(), options).forward -
           price_rest(work, tokens, without, options).forward;
  };
  EXPECT_NEAR(head(2), 2 * 64 * 80 / 1e9, 1e-15);
  EXPECT_NEAR(head(1), head(2) / 2, 1e-15);
}

TEST(Rest, TheUpdateReducesAndStepsEveryParameter) {
  const RestWork work{1, 1, 20, 4};
  const double parameters = 2 * 100 + 4 * 8 + 50 + 70 + 2 * 10 * 8;
  EXPECT_DOUBLE_EQ(price_rest(work, {}, small_rest(), options_of(1e9, kInfinity, 1e6)).update,
                   2 * 0.75 * parameters * 2 / 1e6);
  EXPECT_DOUBLE_EQ(price_rest(work, {}, small_rest(), options_of(1e9, 1e6, kInfinity)).update,
                   parameters * 30 / 1e6);
}

TEST(Rest, EveryShapeHasOne) {
  for (const std::string& name : shape_names()) {
    if (name == "own") {
      continue;
    }
    const Rest rest = find_rest(name, {});
    EXPECT_GE(rest.layers, find_shape(name, {}).layers) << name;
    EXPECT_GT(rest.attention, 0) << name;
    EXPECT_GT(rest.vocabulary, 0) << name;
  }
  EXPECT_EQ(find_rest("own", small_rest()).layers, 2);
  EXPECT_THROW(find_rest("qwen", small_rest()), InputError);
  // 187.1 million parameters of latent attention.
  EXPECT_NEAR(find_rest("deepseek-v3", {}).attention, 187.1e6, 0.1e6);
}

}  // namespace
}  // namespace lrmoe::cost
