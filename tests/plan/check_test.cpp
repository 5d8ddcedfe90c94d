// check_plan catches each kind of broken plan.
#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

using test::message_of;

/// Two ranks, two experts, expert 0 on both; 4 + 2 and 2 + 4 pairs.
Plan whole_plan() {
  Plan plan;
  plan.strategy = "fixed";
  plan.cluster = {2, 2, 2, 1, 0};
  plan.demand = Counts(2, 2);
  plan.demand.values = {4, 2, 2, 4};
  plan.quota = plan.demand;
  plan.dropped = Counts(2, 2);
  plan.placement = Placement(2, 2);
  plan.placement.values = {0, 1, 0, -1};
  plan.forward = {{0, 0, 0, 4}, {0, 1, 0, 2}, {1, 0, 1, 2}, {1, 1, 0, 4}};
  plan.backward = plan.forward;
  return plan;
}

/// The same with half of every cell kept, u = 0.
Plan half_plan() {
  Plan plan = whole_plan();
  plan.keep_all = false;
  plan.quota.values = {2, 1, 1, 2};
  const std::int64_t one = std::int64_t{1} << kQuotaBits;
  plan.cells = {{0, 0, 0, 4, 2 * one, 0, 2},
                {0, 1, 0, 2, 1 * one, 2 * one, 1},
                {1, 0, 1, 2, 1 * one, 5 * one, 1},
                {1, 1, 0, 4, 2 * one, 3 * one, 2}};
  plan.backward = {{0, 0, 0, 2}, {0, 1, 0, 1}, {1, 0, 1, 1}, {1, 1, 0, 2}};
  return plan;
}

void expect_caught(const Plan& plan, const std::string& words) {
  const std::string message = message_of<InternalError>([&] { check_plan(plan); });
  EXPECT_NE(message.find(words), std::string::npos) << "got: " << message;
}

TEST(CheckPlan, AcceptsRightPlans) {
  EXPECT_NO_THROW(check_plan(whole_plan()));
  EXPECT_NO_THROW(check_plan(half_plan()));
}

TEST(CheckPlan, CatchesBrokenTables) {
  Plan plan = whole_plan();
  plan.quota = Counts(2, 3);
  expect_caught(plan, "quota is not [R, E]");
  plan = whole_plan();
  plan.demand.at(0, 0) = -1;
  expect_caught(plan, "negative");
  plan = whole_plan();
  plan.memory.resize(3);
  expect_caught(plan, "memory");
}

TEST(CheckPlan, CatchesBrokenPlacements) {
  Plan plan = whole_plan();
  plan.placement.at(0, 1) = -1;
  expect_caught(plan, "no instance");
  plan = whole_plan();
  plan.placement.at(1, 1) = 2;
  expect_caught(plan, "holds no expert");
  plan = whole_plan();
  plan.placement.at(1, 1) = 0;
  expect_caught(plan, "two instances");
  plan.strategy = "symi";
  EXPECT_NO_THROW(check_plan(plan));
}

TEST(CheckPlan, CatchesBrokenSplits) {
  Plan plan = whole_plan();
  plan.forward[3].rank = 1;
  expect_caught(plan, "does not hold");
  plan = whole_plan();
  std::swap(plan.forward[0], plan.forward[1]);
  expect_caught(plan, "not sorted");
  plan = whole_plan();
  plan.forward[0].pairs = 0;
  expect_caught(plan, "without pairs");
  plan = whole_plan();
  plan.forward[0].rank = 5;
  expect_caught(plan, "out of range");
  plan = whole_plan();
  plan.forward[0].pairs = 3;
  expect_caught(plan, "differ from the demand");
  plan = whole_plan();
  plan.quota.at(0, 0) = 3;
  expect_caught(plan, "differs from the quota");
  plan = whole_plan();
  plan.backward = {{0, 0, 1, 4}, {0, 1, 0, 2}, {1, 0, 1, 2}, {1, 1, 0, 4}};
  expect_caught(plan, "keep-all");
}

TEST(CheckPlan, CatchesBrokenCells) {
  Plan plan = half_plan();
  plan.draw = std::int64_t{1} << kQuotaBits;
  expect_caught(plan, "draw");
  plan = half_plan();
  plan.cells[1].begin += 1;
  expect_caught(plan, "gap");
  plan = half_plan();
  plan.cells[0].keep = 1;
  expect_caught(plan, "count is not the draw's");
  plan = half_plan();
  plan.cells[0].quota = std::int64_t{5} << kQuotaBits;
  expect_caught(plan, "within its demand");
  plan = half_plan();
  plan.cells[0].demand = 3;
  expect_caught(plan, "forward route");
  plan = half_plan();
  plan.cells.pop_back();
  expect_caught(plan, "all pairs");
  plan = half_plan();
  plan.backward[0].rank = 1;  // expert 0 is there too, but the pairs were not
  expect_caught(plan, "return to its instance");
  for (Cell& cell : plan.cells) {
    cell.rank = -1;
  }
  const std::int64_t one = std::int64_t{1} << kQuotaBits;
  plan.activations = Activations::recompute;
  plan.cells[1].begin = 3 * one;  // the line goes by experts then
  plan.cells[2].begin = 2 * one;
  plan.cells[3].begin = 4 * one;
  EXPECT_NO_THROW(check_plan(plan));  // recompute: any instance will do
}

}  // namespace
}  // namespace lrmoe::plan
