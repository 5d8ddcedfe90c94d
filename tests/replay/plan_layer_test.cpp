// `lrmoe plan`: every rule of the plan's format, checked on the JSON alone.
#include "lrmoe/replay/plan_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/json.h"
#include "tests/error_message.h"
#include "tests/replay/helpers.h"

namespace lrmoe::replay {
namespace {

using Json = nlohmann::ordered_json;

PlanOptions options(const std::string& strategy, double ratio,
                    plan::Activations activations = plan::Activations::keep) {
  PlanOptions o;
  o.ranks = 4;
  o.strategy.name = strategy;
  o.strategy.capacity_factor = strategy == "fixed-capacity" ? 1.0 : o.strategy.capacity_factor;
  o.strategy.lrmoe.ratio = ratio;
  o.strategy.lrmoe.activations = activations;
  o.layer = 1;
  o.shape = {"test", 64, 32, 16, 4, 2, 2};
  return o;
}

/// The rules of docs/design.md and the format, from the document alone.
void check_document(const Json& plan, const trace::Routing& routing, bool keep) {
  const int ranks = plan["ranks"], experts = plan["experts"], slots = plan["slots"];
  std::map<std::pair<int, int>, int> demand, forward, backward;
  for (int r = 0; r < ranks; ++r) {
    ASSERT_EQ(plan["placement"][r].size(), static_cast<std::size_t>(slots));
    for (int e = 0; e < experts; ++e) {
      const int wanted = plan["demand"][r][e];
      const int dropped = plan["dropped"][r][e];
      EXPECT_GE(dropped, 0);
      demand[{r, e}] = wanted - dropped;
    }
  }
  // The demand is the trace's: tokens in equal runs.
  std::map<int, int> pairs;
  for (const std::int32_t id : routing.ids) {
    ++pairs[id];
  }
  for (int e = 0; e < experts; ++e) {
    int all = 0;
    for (int r = 0; r < ranks; ++r) {
      all += plan["demand"][r][e].get<int>();
    }
    EXPECT_EQ(all, pairs[e]);
  }
  std::set<int> placed;
  std::map<std::tuple<int, int, int>, int> entries;
  for (const char* way : {"forward", "backward"}) {
    for (const Json& route : plan[way]) {
      const int source = route[0], expert = route[1], rank = route[2], count = route[3];
      EXPECT_GT(count, 0);
      const auto& there = plan["placement"][rank];
      EXPECT_NE(std::find(there.begin(), there.end(), expert), there.end());
      placed.insert(expert);
      if (std::string(way) == "forward") {
        forward[{source, expert}] += count;
        entries[{source, expert, rank}] += count;
      } else {
        backward[{source, expert}] += count;
        if (keep) {
          EXPECT_LE(count, (entries[{source, expert, rank}]));
        }
      }
    }
  }
  for (int r = 0; r < ranks; ++r) {
    for (int e = 0; e < experts; ++e) {
      EXPECT_EQ((forward[{r, e}]), (demand[{r, e}]));
      EXPECT_EQ((backward[{r, e}]), plan["quota"][r][e].get<int>());
    }
  }
  EXPECT_EQ(plan["memory"].size(), static_cast<std::size_t>(ranks));
  for (const Json& m : plan["memory"]) {
    std::int64_t sum = 0;
    for (const char* term : {"weights", "gradients", "activations", "buffers", "workspace"}) {
      EXPECT_GE(m[term].get<std::int64_t>(), 0);
      sum += m[term].get<std::int64_t>();
    }
    EXPECT_EQ(m["total"], sum);
  }
  EXPECT_GE(plan["seconds"]["plan"].get<double>(), 0);
  EXPECT_TRUE(plan["notes"].is_array());
  EXPECT_TRUE(plan["added_variance"].is_number());
}

TEST(PlanLayer, EveryFieldOfTheFormatAndEveryRule) {
  const trace::Trace trace = random_trace(2, 2, 500, 16, 4);
  for (const char* name : {"fixed", "fixed-capacity", "symi", "eplb", "lrmoe", "symi-sampled"}) {
    for (const double ratio : {1.0, 0.25}) {
      for (const auto activations : {plan::Activations::keep, plan::Activations::recompute}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(ratio));
        const PlanOptions o = options(name, ratio, activations);
        const PlannedLayer planned = plan_layer(trace, o);
        const Json json = plan::to_json(planned.plan, 0.5);
        EXPECT_EQ(json["format"], "lrmoe-plan");
        EXPECT_EQ(json["version"], 1);
        EXPECT_EQ(json["strategy"], name);
        EXPECT_EQ(json["top_k"], 4);
        EXPECT_EQ(json["seconds"]["plan"], 0.5);
        const bool keep = activations == plan::Activations::keep || planned.plan.keep_all;
        check_document(json, trace.read(0, 1), keep);
        EXPECT_NE(to_text(planned, trace, o).find("planned in"), std::string::npos);
      }
    }
  }
}

TEST(PlanLayer, ThePlacementMayBePlannedOnAnotherStep) {
  const trace::Trace trace = random_trace(2, 2, 500, 16, 4);
  PlanOptions o = options("lrmoe", 1);
  o.step = 1;
  const plan::Plan own = plan_layer(trace, o).plan;
  o.placement_step = 0;
  const plan::Plan other = plan_layer(trace, o).plan;
  EXPECT_EQ(own.demand, other.demand);
  o.step = 0;
  o.placement_step = -1;
  EXPECT_EQ(plan_layer(trace, o).plan.placement, other.placement);
}

TEST(PlanLayer, WrongNumbersAreRefused) {
  const trace::Trace trace = random_trace(2, 2, 100, 16, 4);
  PlanOptions o = options("lrmoe", 1);
  o.layer = 2;
  EXPECT_EQ(testing::message_of<InputError>([&] { plan_layer(trace, o); }).substr(0, 9),
            "--layer 2");
  o.layer = 0;
  o.step = -1;
  EXPECT_EQ(testing::message_of<InputError>([&] { plan_layer(trace, o); }).substr(0, 9),
            "--step -1");
  o.step = 0;
  o.placement_step = 7;
  EXPECT_EQ(testing::message_of<InputError>([&] { plan_layer(trace, o); }).substr(0, 18),
            "--placement-step 7");
  o.placement_step = -1;
  o.slots = 3;
  EXPECT_NE(testing::message_of<InputError>([&] { plan_layer(trace, o); }).find("at least 4"),
            std::string::npos);
}

}  // namespace
}  // namespace lrmoe::replay
