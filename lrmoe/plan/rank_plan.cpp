#include "lrmoe/plan/rank_plan.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Split pick(const Split& split, std::int32_t Route::*end, int rank) {
  Split out;
  std::copy_if(split.begin(), split.end(), std::back_inserter(out),
               [&](const Route& route) { return route.*end == rank; });
  return out;
}

std::int64_t total(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

class Part {
 public:
  Part(const RouteInput& input, int rank, RouteScratch& scratch)
      : input_(input),
        outline_(scratch.outline),
        index_(outline_.index),
        scratch_(scratch),
        rank_(rank) {
    plan_.rank = rank;
    plan_.cluster = input.cluster;
    plan_.keep_all = outline_.keep_all;
    plan_.score = outline_.score;
    plan_.notes = outline_.notes;
    if (!outline_.keep_all) {
      plan_.listed = input.listed != nullptr;
      plan_.draw = input.draw;
      plan_.added_variance = outline_.added_variance;
    }
  }

  RankPlan make() {
    forward();
    if (outline_.keep_all) {
      plan_.kept_sends = plan_.sends;
      plan_.kept_receives = plan_.receives;
    } else if (!outline_.by_instance) {
      backward();
    }
    plan_.routed = total(outline_.demand.all);
    plan_.expert_pairs = outline_.demand.all;
    plan_.forward_loads = rank_loads_of(outline_.forward);
    plan_.backward_loads =
        outline_.keep_all ? plan_.forward_loads : rank_loads_of(outline_.backward);
    plan_.retained = total(plan_.backward_loads);
    return std::move(plan_);
  }

 private:
  std::vector<std::int64_t> rank_loads_of(const std::vector<std::int64_t>& loads) const {
    std::vector<std::int64_t> sums(at(index_.ranks), 0);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      sums[at(index_.rank[i])] += loads[i];
    }
    return sums;
  }

  Lines lines(std::span<const std::int64_t> loads, std::span<const std::int64_t> before_node) {
    // What stays on its rank: scratch.local holds the pairs that are there.
    for (std::size_t i = 0; i < loads.size(); ++i) {
      scratch_.local[i] = std::min(scratch_.local[i], loads[i]);
    }
    const bool nodes = node_count(input_.cluster) > 1;
    return {&index_, node_width(input_.cluster), loads, scratch_.local,
            nodes ? before_node : std::span<const std::int64_t>{}};
  }

  /// Cell of `pairs` pairs at `source` on an instance, with `before` pairs there already.
  Cell cell_at(int source, std::int32_t i, std::int64_t before, std::int64_t pairs) const {
    const std::int64_t quota = outline_.quota[at(i)];
    const std::int64_t load = outline_.forward[at(i)];
    const std::int64_t begin = mul_div(quota, before, load);
    Cell cell{source, index_.expert[at(i)], index_.rank[at(i)], static_cast<std::int32_t>(pairs)};
    cell.quota = mul_div(quota, before + pairs, load) - begin;
    cell.begin = outline_.begin[at(i)] + begin;
    cell.keep = points_between(cell.begin, cell.begin + cell.quota, input_.draw);
    return cell;
  }

  void forward() {
    for (std::size_t i = 0; i < outline_.forward.size(); ++i) {
      scratch_.local[i] = input_.demand.at(index_.rank[i], index_.expert[i]);
    }
    const Lines flow = lines(outline_.forward, outline_.demand.before_node);
    const bool cells = !outline_.keep_all && outline_.by_instance;
    SourceRoutes routes;
    const auto demand = input_.demand.row(rank_);
    plan_.sends.reserve(demand.size() + 8);
    if (cells) {
      plan_.cells.reserve(demand.size() + 8);
      plan_.kept_sends.reserve(demand.size() + 8);
    }
    for (std::int32_t e = 0; e < index_.experts; ++e) {
      if (demand[at(e)] == 0) {
        continue;
      }
      routes.find(flow, e, rank_, outline_.demand.before_rank[at(e)], demand[at(e)]);
      for (std::size_t j = 0; j < routes.sent.size(); ++j) {
        const std::int64_t pairs = routes.sent[j];
        if (pairs == 0) {
          continue;
        }
        const auto i = static_cast<std::int32_t>(at(index_.begin[at(e)]) + j);
        const std::int32_t to = index_.rank[at(i)];
        plan_.sends.push_back({rank_, e, to, static_cast<std::int32_t>(pairs)});
        if (cells) {
          plan_.cells.push_back(cell_at(rank_, i, routes.before_sent[j], pairs));
          if (plan_.cells.back().keep > 0) {
            plan_.kept_sends.push_back({rank_, e, to, plan_.cells.back().keep});
          }
        }
      }
    }
    receive(
        flow,
        [&](std::int32_t i, int s, std::int64_t) {
          return std::int64_t{input_.demand.at(s, index_.expert[at(i)])};
        },
        plan_.receives, cells);
  }

  /// What comes to this rank's instances; `count` pairs of an instance's expert at a source.
  template <class F>
  void receive(const Lines& flow, F count, Split& out, bool cells) {
    const auto own = index_.on_rank(rank_);
    std::vector<Arrivals> arrivals;
    std::vector<std::int64_t> so_far(own.size(), 0);   // at the instance
    std::vector<std::int64_t> sources(own.size(), 0);  // of its expert
    arrivals.reserve(own.size());
    for (const std::int32_t i : own) {
      arrivals.emplace_back(flow, i);
    }
    out.reserve(own.size() * at(index_.ranks));
    for (int s = 0; s < index_.ranks; ++s) {
      for (std::size_t k = 0; k < own.size(); ++k) {
        const std::int64_t here = count(own[k], s, sources[k]);
        const std::int64_t pairs = arrivals[k].next(here);
        if (pairs > 0) {
          const std::int32_t e = index_.expert[at(own[k])];
          out.push_back({s, e, rank_, static_cast<std::int32_t>(pairs)});
          if (cells) {
            const Cell cell = cell_at(s, own[k], so_far[k], pairs);
            if (cell.keep > 0) {
              plan_.kept_receives.push_back({s, e, rank_, cell.keep});
            }
          }
        }
        so_far[k] += pairs;
        sources[k] += offered(s, index_.expert[at(own[k])]);
      }
    }
  }

  std::int32_t offered(int source, std::int32_t e) const {
    return (input_.listed != nullptr ? *input_.listed : input_.demand).at(source, e);
  }

  std::int64_t kept(std::int32_t e, std::int64_t before) const {
    const Prefixes& prefixes = input_.listed != nullptr ? outline_.listed : outline_.demand;
    return prefixes.all[at(e)] == 0
               ? 0
               : kept_before(outline_, input_.draw, at(e), before, prefixes.all[at(e)]);
  }

  /// Cells by source and expert; their kept pairs are split over the instances anew.
  void backward() {
    const Prefixes& prefixes = input_.listed != nullptr ? outline_.listed : outline_.demand;
    for (std::size_t i = 0; i < outline_.backward.size(); ++i) {
      const std::int32_t e = index_.expert[i];
      if (index_.count(e) == 1) {
        continue;  // nobody asks
      }
      const std::int64_t before = prefixes.before_self[i];
      scratch_.local[i] = kept(e, before + offered(index_.rank[i], e)) - kept(e, before);
    }
    scratch_.node_pairs.clear();  // here: kept pairs of the sources before each node
    if (node_count(input_.cluster) > 1) {
      for (std::size_t i = 0; i < prefixes.before_node.size(); ++i) {
        const auto e = static_cast<std::int32_t>(i % at(index_.experts));
        scratch_.node_pairs.push_back(kept(e, prefixes.before_node[i]));
      }
    }
    const Lines flow = lines(outline_.backward, scratch_.node_pairs);
    SourceRoutes routes;
    for (std::int32_t e = 0; e < index_.experts; ++e) {
      const std::int32_t pairs = offered(rank_, e);
      if (pairs == 0) {
        continue;
      }
      const std::int64_t before = prefixes.before_rank[at(e)];
      const std::int64_t all = prefixes.all[at(e)];
      const std::int64_t quota = outline_.quota[at(e)];
      Cell cell{rank_, e, -1, pairs};
      const std::int64_t begin = mul_div(quota, before, all);
      cell.quota = mul_div(quota, before + pairs, all) - begin;
      cell.begin = outline_.begin[at(e)] + begin;
      cell.keep = points_between(cell.begin, cell.begin + cell.quota, input_.draw);
      plan_.cells.push_back(cell);
      if (cell.keep == 0) {
        continue;
      }
      routes.find(flow, e, rank_, kept(e, before), cell.keep);
      for (std::size_t j = 0; j < routes.sent.size(); ++j) {
        if (routes.sent[j] > 0) {
          plan_.kept_sends.push_back({rank_, e, index_.rank[at(index_.begin[at(e)]) + j],
                                      static_cast<std::int32_t>(routes.sent[j])});
        }
      }
    }
    receive(
        flow,
        [&](std::int32_t i, int s, std::int64_t before) {
          const std::int32_t e = index_.expert[at(i)];
          const std::int32_t pairs = offered(s, e);
          return pairs == 0 ? 0 : kept(e, before + pairs) - kept(e, before);
        },
        plan_.kept_receives, false);
  }

  const RouteInput& input_;
  const Outline& outline_;
  const InstanceIndex& index_;
  RouteScratch& scratch_;
  int rank_;
  RankPlan plan_;
};

}  // namespace

RankPlan part_of(const Plan& plan, int rank) {
  RankPlan part;
  part.rank = rank;
  part.cluster = plan.cluster;
  part.sends = pick(plan.forward, &Route::source, rank);
  part.receives = pick(plan.forward, &Route::rank, rank);
  part.kept_sends = pick(plan.backward, &Route::source, rank);
  part.kept_receives = pick(plan.backward, &Route::rank, rank);
  part.keep_all = plan.keep_all;
  part.score = plan.score;
  part.listed = plan.listed;
  part.activations = plan.activations;
  part.chunks = plan.chunks;
  std::copy_if(plan.cells.begin(), plan.cells.end(), std::back_inserter(part.cells),
               [&](const Cell& cell) { return cell.source == rank; });
  part.draw = plan.draw;
  part.added_variance = plan.added_variance;
  part.notes = plan.notes;
  part.routed = total_pairs(plan.demand);
  part.expert_pairs = pairs_per_expert(plan.demand);
  part.dropped = total_pairs(plan.dropped);
  part.retained = total_pairs(plan.quota);
  part.forward_loads = rank_loads(plan.forward, plan.cluster.ranks);
  part.backward_loads = rank_loads(plan.backward, plan.cluster.ranks);
  return part;
}

RankPlan part_of_outline(const RouteInput& input, int rank, RouteScratch& scratch) {
  return Part(input, rank, scratch).make();
}

}  // namespace lrmoe::plan
