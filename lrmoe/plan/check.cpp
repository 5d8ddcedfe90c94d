// check_plan: the rules that every plan keeps, whatever strategy made it.
#include <algorithm>
#include <map>
#include <tuple>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

std::string at(int source, int expert) {
  return " (source " + std::to_string(source) + ", expert " + std::to_string(expert) + ")";
}

void check_tables(const Plan& plan) {
  const Cluster& c = plan.cluster;
  LRMOE_ASSERT(c.ranks >= 1 && c.experts >= 1 && c.slots >= 1, "[check_plan] an empty cluster");
  const auto counts = [&](const Counts& table, const char* name) {
    LRMOE_ASSERT(table.rows == c.ranks && table.cols == c.experts &&
                     table.values.size() ==
                         static_cast<std::size_t>(c.ranks) * static_cast<std::size_t>(c.experts),
                 "[check_plan] " + std::string(name) + " is not [R, E]");
    for (const std::int32_t value : table.values) {
      LRMOE_ASSERT(value >= 0, "[check_plan] a negative count in " + std::string(name));
    }
  };
  counts(plan.demand, "demand");
  counts(plan.quota, "quota");
  counts(plan.dropped, "dropped");
  LRMOE_ASSERT(plan.chunks >= 1, "[check_plan] a pass in no chunk");
  LRMOE_ASSERT(plan.memory.empty() || plan.memory.size() == static_cast<std::size_t>(c.ranks),
               "[check_plan] memory is not [R]");
}

void check_placement(const Plan& plan) {
  const Cluster& c = plan.cluster;
  LRMOE_ASSERT(plan.placement.rows == c.ranks && plan.placement.cols == c.slots,
               "[check_plan] placement is not [R, S]");
  for (const std::int32_t e : plan.placement.values) {
    LRMOE_ASSERT(e >= -1 && e < c.experts, "[check_plan] a slot holds no expert of the model");
  }
  const bool doubles = plan.strategy.starts_with("symi");
  const Counts slots = slots_per_rank(plan.placement, c.experts);
  for (int e = 0; e < c.experts; ++e) {
    int instances = 0;
    for (const std::int32_t here : slots.row(e)) {
      instances += here;
      LRMOE_ASSERT(here <= 1 || doubles,
                   "[check_plan] expert " + std::to_string(e) + " has two instances on one rank");
    }
    LRMOE_ASSERT(instances > 0, "[check_plan] expert " + std::to_string(e) + " has no instance");
  }
}

void check_split(const Plan& plan, const Split& split, const char* name) {
  const Cluster& c = plan.cluster;
  const Counts slots = slots_per_rank(plan.placement, c.experts);
  const std::string where = "[check_plan] " + std::string(name) + ": ";
  const Route* before = nullptr;
  for (const Route& route : split) {
    LRMOE_ASSERT(route.source >= 0 && route.source < c.ranks && route.rank >= 0 &&
                     route.rank < c.ranks && route.expert >= 0 && route.expert < c.experts,
                 where + "a route out of range");
    LRMOE_ASSERT(route.pairs > 0, where + "a route without pairs" + at(route.source, route.expert));
    LRMOE_ASSERT(slots.at(route.expert, route.rank) > 0,
                 where + "rank " + std::to_string(route.rank) + " does not hold expert " +
                     std::to_string(route.expert));
    LRMOE_ASSERT(before == nullptr || std::tie(before->source, before->expert, before->rank) <
                                          std::tie(route.source, route.expert, route.rank),
                 where + "not sorted, or a route twice" + at(route.source, route.expert));
    before = &route;
  }
}

void check_sums(const Plan& plan) {
  const Cluster& c = plan.cluster;
  const Counts forward = source_counts(plan.forward, c.ranks, c.experts);
  const Counts backward = source_counts(plan.backward, c.ranks, c.experts);
  for (int r = 0; r < c.ranks; ++r) {
    for (int e = 0; e < c.experts; ++e) {
      LRMOE_ASSERT(forward.at(r, e) + plan.dropped.at(r, e) == plan.demand.at(r, e),
                   "[check_plan] forward + dropped differ from the demand" + at(r, e));
      LRMOE_ASSERT(backward.at(r, e) == plan.quota.at(r, e),
                   "[check_plan] backward differs from the quota" + at(r, e));
      LRMOE_ASSERT(plan.quota.at(r, e) <= forward.at(r, e),
                   "[check_plan] a quota above the pairs that were computed" + at(r, e));
    }
  }
}

using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

std::map<Key, std::int32_t> by_key(const Split& split) {
  std::map<Key, std::int32_t> pairs;
  for (const Route& route : split) {
    pairs[{route.source, route.expert, route.rank}] = route.pairs;
  }
  return pairs;
}

void check_line(const Plan& plan) {
  std::vector<const Cell*> order;
  for (const Cell& cell : plan.cells) {
    order.push_back(&cell);
  }
  std::sort(order.begin(), order.end(), [](const Cell* a, const Cell* b) {
    return std::tie(a->rank, a->expert, a->source) < std::tie(b->rank, b->expert, b->source);
  });
  std::int64_t line = 0;
  for (const Cell* cell : order) {
    LRMOE_ASSERT(cell->begin == line,
                 "[check_plan] a gap on the cells' line" + at(cell->source, cell->expert));
    line += cell->quota;
  }
}

void check_cells(const Plan& plan) {
  const Cluster& c = plan.cluster;
  const std::int64_t one = std::int64_t{1} << kQuotaBits;
  LRMOE_ASSERT(plan.draw >= 0 && plan.draw < one, "[check_plan] the draw is not in [0, 1)");
  const auto forward = by_key(plan.forward);
  const auto backward = by_key(plan.backward);
  Counts demand(c.ranks, c.experts);
  Counts kept(c.ranks, c.experts);
  const Cell* before = nullptr;
  for (const Cell& cell : plan.cells) {
    LRMOE_ASSERT(cell.source >= 0 && cell.source < c.ranks && cell.expert >= 0 &&
                     cell.expert < c.experts && cell.rank >= -1 && cell.rank < c.ranks,
                 "[check_plan] a cell out of range");
    const std::string where = at(cell.source, cell.expert);
    LRMOE_ASSERT((cell.rank >= 0) == (plan.activations == Activations::keep),
                 "[check_plan] only activations that stay where they are (keep) tie a cell to an "
                 "instance" +
                     where);
    LRMOE_ASSERT(before == nullptr || std::tie(before->source, before->expert, before->rank) <
                                          std::tie(cell.source, cell.expert, cell.rank),
                 "[check_plan] cells not sorted" + where);
    LRMOE_ASSERT(cell.quota >= 0 && cell.quota <= cell.demand * one,
                 "[check_plan] a cell's quota is not within its demand" + where);
    LRMOE_ASSERT(cell.keep == points_between(cell.begin, cell.begin + cell.quota, plan.draw),
                 "[check_plan] a cell's count is not the draw's" + where);
    demand.at(cell.source, cell.expert) += cell.demand;
    kept.at(cell.source, cell.expert) += cell.keep;
    if (cell.rank >= 0) {
      const Key key{cell.source, cell.expert, cell.rank};
      const auto there = forward.find(key);
      LRMOE_ASSERT(there != forward.end() &&
                       (plan.listed ? there->second >= cell.demand : there->second == cell.demand),
                   "[check_plan] a cell is not a forward route" + where);
      const auto back = backward.find(key);
      LRMOE_ASSERT((back == backward.end() ? 0 : back->second) == cell.keep,
                   "[check_plan] a kept cell does not return to its instance" + where);
    }
    before = &cell;
  }
  const Counts routed = source_counts(plan.forward, c.ranks, c.experts);
  for (std::size_t i = 0; i < routed.values.size(); ++i) {
    LRMOE_ASSERT(
        plan.listed ? demand.values[i] <= routed.values[i] : demand.values[i] == routed.values[i],
        "[check_plan] the cells do not hold all pairs");
  }
  LRMOE_ASSERT(kept == plan.quota, "[check_plan] the cells' counts differ from the quota");
  check_line(plan);
}

}  // namespace

void check_plan(const Plan& plan) {
  check_tables(plan);
  check_placement(plan);
  check_split(plan, plan.forward, "forward");
  check_split(plan, plan.backward, "backward");
  check_sums(plan);
  if (plan.keep_all) {
    LRMOE_ASSERT(plan.backward == plan.forward && plan.cells.empty(),
                 "[check_plan] a keep-all plan has a backward split of its own");
  } else {
    check_cells(plan);
  }
}

}  // namespace lrmoe::plan
