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

  /// `local` [I]: pairs that are on an instance's rank; becomes what stays there.
  Lines lines(std::span<const std::int64_t> loads, std::vector<std::int64_t>& local,
              std::span<const std::int64_t> before_node) const {
    for (std::size_t i = 0; i < loads.size(); ++i) {
      local[i] = std::min(local[i], loads[i]);
    }
    const bool nodes = node_count(input_.cluster) > 1;
    return {&index_, node_width(input_.cluster), loads, local,
            nodes ? before_node : std::span<const std::int64_t>{}};
  }

  // Fields are written in place: a copy of what was just written in parts waits for them.
  static void add(Split& out, std::int32_t source, std::int32_t expert, std::int32_t rank,
                  std::int64_t pairs) {
    Route& route = out.emplace_back();
    route.source = source;
    route.expert = expert;
    route.rank = rank;
    route.pairs = static_cast<std::int32_t>(pairs);
  }
  const Cell& add_cell(std::int32_t e, std::int32_t to, std::int64_t pairs, std::int64_t quota,
                       std::int64_t begin) {
    Cell& cell = plan_.cells.emplace_back();
    cell.source = rank_;
    cell.expert = e;
    cell.rank = to;
    cell.demand = static_cast<std::int32_t>(pairs);
    cell.quota = quota;
    cell.begin = begin;
    cell.keep = points_between(begin, begin + quota, input_.draw);
    return cell;
  }

  void forward() {
    const Lines flow = lines(outline_.forward, scratch_.local, outline_.demand.before_node);
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
      const std::int64_t before = outline_.demand.before_rank[at(e)];
      const std::int32_t first = index_.begin[at(e)];
      if (index_.count(e) == 1) {
        send(e, first, demand[at(e)], before, cells);
        continue;
      }
      routes.find(flow, e, rank_, before, demand[at(e)]);
      for (std::size_t j = 0; j < routes.sent.size(); ++j) {
        if (routes.sent[j] > 0) {
          send(e, first + static_cast<std::int32_t>(j), routes.sent[j], routes.before_sent[j],
               cells);
        }
      }
    }
    receive_all(flow, cells);
  }

  /// `pairs` of this rank to an instance that has `before` already, and their cell.
  void send(std::int32_t e, std::int32_t i, std::int64_t pairs, std::int64_t before, bool cells) {
    const std::int32_t to = index_.rank[at(i)];
    add(plan_.sends, rank_, e, to, pairs);
    if (cells) {
      const std::int64_t quota = outline_.quota[at(i)];
      const std::int64_t load = outline_.forward[at(i)];
      const std::int64_t begin = mul_div(quota, before, load);
      const Cell& cell = add_cell(e, to, pairs, mul_div(quota, before + pairs, load) - begin,
                                  outline_.begin[at(i)] + begin);
      if (cell.keep > 0) {
        add(plan_.kept_sends, rank_, e, to, cell.keep);
      }
    }
  }

  /// What comes to this rank's instances. With cells, how many of them are kept too: the
  /// points up to where an instance's line stands.
  void receive_all(const Lines& flow, bool cells) {
    const auto own = index_.on_rank(rank_);
    std::vector<Arrivals> arrivals;
    struct SoFar {
      std::int64_t pairs = 0;
      std::int64_t points = 0;
    };
    std::vector<SoFar> so_far(own.size());
    arrivals.reserve(own.size());
    for (const std::int32_t i : own) {
      arrivals.emplace_back(flow, i);
    }
    plan_.receives.reserve(own.size() * at(index_.ranks));
    if (cells) {
      plan_.kept_receives.reserve(own.size() * at(index_.ranks));
    }
    for (int s = 0; s < index_.ranks; ++s) {
      const auto demand = input_.demand.row(s);
      for (std::size_t k = 0; k < own.size(); ++k) {
        const auto i = at(own[k]);
        const std::int32_t e = index_.expert[i];
        const std::int64_t pairs = arrivals[k].next(demand[at(e)]);
        if (pairs == 0) {
          continue;
        }
        add(plan_.receives, s, e, rank_, pairs);
        if (cells) {
          so_far[k].pairs += pairs;
          const std::int64_t begin = outline_.begin[i];
          const std::int64_t end =
              begin + mul_div(outline_.quota[i], so_far[k].pairs, outline_.forward[i]);
          const std::int64_t points = points_between(begin, end, input_.draw);
          if (points > so_far[k].points) {
            add(plan_.kept_receives, s, e, rank_, points - so_far[k].points);
          }
          so_far[k].points = points;
        }
      }
    }
  }

  const Prefixes& offered() const {
    return input_.listed != nullptr ? outline_.listed : outline_.demand;
  }
  std::int64_t kept(std::int32_t e, std::int64_t before) const {
    const std::int64_t all = offered().all[at(e)];
    return all == 0 ? 0 : kept_before(outline_, input_.draw, at(e), before, all);
  }

  /// Cells by source and expert; their kept pairs are split over the instances anew.
  void backward() {
    const Counts& counts = input_.listed != nullptr ? *input_.listed : input_.demand;
    const Prefixes& prefixes = offered();
    scratch_.node_pairs.clear();  // here: kept pairs of the sources before each node
    if (node_count(input_.cluster) > 1) {
      for (std::size_t i = 0; i < prefixes.before_node.size(); ++i) {
        const auto e = static_cast<std::int32_t>(i % at(index_.experts));
        scratch_.node_pairs.push_back(kept(e, prefixes.before_node[i]));
      }
    }
    const Lines flow = lines(outline_.backward, scratch_.kept_local, scratch_.node_pairs);
    SourceRoutes routes;
    plan_.cells.reserve(at(index_.experts));
    plan_.kept_sends.reserve(at(index_.experts) + 8);
    for (std::int32_t e = 0; e < index_.experts; ++e) {
      const std::int32_t pairs = counts.at(rank_, e);
      if (pairs == 0) {
        continue;
      }
      const std::int64_t before = prefixes.before_rank[at(e)];
      const std::int64_t all = prefixes.all[at(e)];
      const std::int64_t quota = outline_.quota[at(e)];
      const std::int64_t line = outline_.begin[at(e)];
      const std::int64_t begin = mul_div(quota, before, all);
      const Cell& cell =
          add_cell(e, -1, pairs, mul_div(quota, before + pairs, all) - begin, line + begin);
      if (cell.keep == 0) {
        continue;
      }
      const auto first = at(index_.begin[at(e)]);
      if (index_.count(e) == 1) {
        add(plan_.kept_sends, rank_, e, index_.rank[first], cell.keep);
        continue;
      }
      routes.find(flow, e, rank_, points_between(line, line + begin, input_.draw), cell.keep);
      for (std::size_t j = 0; j < routes.sent.size(); ++j) {
        if (routes.sent[j] > 0) {
          add(plan_.kept_sends, rank_, e, index_.rank[first + j], routes.sent[j]);
        }
      }
    }
    receive_kept(flow, counts);
  }

  void receive_kept(const Lines& flow, const Counts& counts) {
    const auto own = index_.on_rank(rank_);
    std::vector<Arrivals> arrivals;
    struct SoFar {
      std::int64_t offered = 0;  // of its expert, at the sources so far
      std::int64_t kept = 0;
    };
    std::vector<SoFar> so_far(own.size());
    arrivals.reserve(own.size());
    for (const std::int32_t i : own) {
      arrivals.emplace_back(flow, i);
    }
    plan_.kept_receives.reserve(own.size() * at(index_.ranks));
    for (int s = 0; s < index_.ranks; ++s) {
      const auto offered = counts.row(s);
      for (std::size_t k = 0; k < own.size(); ++k) {
        const std::int32_t e = index_.expert[at(own[k])];
        const std::int64_t before = so_far[k].kept;
        if (offered[at(e)] > 0) {
          so_far[k].offered += offered[at(e)];
          so_far[k].kept = kept(e, so_far[k].offered);
        }
        const std::int64_t pairs = arrivals[k].next(so_far[k].kept - before);
        if (pairs > 0) {
          add(plan_.kept_receives, s, e, rank_, pairs);
        }
      }
    }
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
