#include "lrmoe/plan/place.h"

#include <gtest/gtest.h>

#include "lrmoe/plan/tables.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

std::vector<std::int64_t> random_weights(test::Random& random, int experts, double skew) {
  std::vector<std::int64_t> weights;
  for (int e = 0; e < experts; ++e) {
    weights.push_back(static_cast<std::int64_t>(1e6 / std::pow(1.0 + e, skew)));
  }
  std::shuffle(weights.begin(), weights.end(), random);
  return weights;
}

/// Every expert somewhere, on a rank at most once.
void expect_sound(const Placement& placement, int experts) {
  const auto slots = slots_of_experts(placement, experts);
  for (const auto& ranks : slots) {
    EXPECT_FALSE(ranks.empty());
    EXPECT_EQ(std::adjacent_find(ranks.begin(), ranks.end()), ranks.end());
  }
}

TEST(PackBalanced, KeepsInstancesApartEvenWhereItMustMoveOthers) {
  test::Random random(32);
  for (int round = 0; round < 500; ++round) {
    const int ranks = test::pick(random, 1, 8);
    const int slots = test::pick(random, 1, 5);
    const int experts = test::pick(random, 1, ranks * slots);
    const auto weights = random_weights(random, experts, 0.2 * test::pick(random, 0, 12));
    const auto instances = greedy_replicas(weights, std::int64_t{ranks} * slots, ranks);
    expect_sound(pack_balanced(weights, instances, ranks, slots, true), experts);
  }
}

}  // namespace
}  // namespace lrmoe::plan
