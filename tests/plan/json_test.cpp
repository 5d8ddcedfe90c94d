#include "lrmoe/plan/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

TEST(PlanJson, HasTheFieldsOfVersionOne) {
  const Cluster cluster{2, 3, 2, 1, 0};
  const auto strategy = make_strategy({.name = "fixed-capacity", .capacity_factor = 1.0});
  RouteInput input{cluster, Counts(2, 3), strategy->initial(cluster)};
  input.demand.values = {4, 0, 1, 2, 2, 0};  // capacity 3: expert 0 drops 3 of 6
  Plan plan = strategy->route(input);
  plan.memory = {{1, 2, 3, 4, 5}, {0, 0, 0, 0, 0}};
  plan.notes = {"a note"};
  const auto expected = nlohmann::json::parse(R"({
    "format": "lrmoe-plan", "version": 1, "strategy": "fixed-capacity",
    "ranks": 2, "experts": 3, "slots": 2, "top_k": 1,
    "demand": [[4, 0, 1], [2, 2, 0]], "quota": [[2, 0, 1], [1, 2, 0]],
    "placement": [[0, 1], [2, -1]], "dropped": [[2, 0, 0], [1, 0, 0]],
    "forward": [[0, 0, 0, 2], [0, 2, 1, 1], [1, 0, 0, 1], [1, 1, 0, 2]],
    "backward": [[0, 0, 0, 2], [0, 2, 1, 1], [1, 0, 0, 1], [1, 1, 0, 2]],
    "keep_all": true, "added_variance": 0.0,
    "memory": [
      {"weights": 1, "gradients": 2, "activations": 3, "buffers": 4, "workspace": 5, "total": 15},
      {"weights": 0, "gradients": 0, "activations": 0, "buffers": 0, "workspace": 0, "total": 0}],
    "seconds": {"plan": 0.5}, "notes": ["a note"]})");
  EXPECT_EQ(nlohmann::json::parse(to_json(plan, 0.5).dump()), expected);
}

}  // namespace
}  // namespace lrmoe::plan
