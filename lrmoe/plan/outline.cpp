#include "lrmoe/plan/outline.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/keep.h"

namespace lrmoe::plan {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t total(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::string percent_above_mean(std::int64_t capacity, std::int64_t target, int ranks) {
  const std::int64_t mean = std::max<std::int64_t>(target / ranks, 1);
  return std::to_string(mul_div(capacity - mean, 100, mean)) + "%";
}

/// [nodes * E] from prefixes at the nodes' beginnings; empty for one node.
void pairs_of_nodes(const Cluster& cluster, std::span<const std::int64_t> before_node,
                    std::vector<std::int64_t>& out) {
  out.clear();
  const auto experts = at(cluster.experts);
  if (node_count(cluster) > 1) {
    for (std::size_t i = experts; i < before_node.size(); ++i) {
      out.push_back(before_node[i] - before_node[i - experts]);
    }
  }
}

/// The min-max split; of several the one whose pairs cross nodes least.
void split_locally(const Cluster& cluster, const InstanceIndex& index,
                   std::span<const std::int64_t> pairs, std::span<const std::int64_t> local,
                   RouteScratch& scratch, std::span<std::int64_t> loads) {
  const std::int64_t largest = scratch.balancer.split(index, pairs, local, loads);
  if (node_count(cluster) > 1) {
    scratch.localizer.split(index, pairs, local, scratch.node_pairs, node_width(cluster), largest,
                            loads);
  }
}

/// The line by instances, rank after rank; an instance's cells are its sources.
void keep_at_instances(Outline& outline, std::int64_t draw) {
  const auto count = outline.quota.size();
  outline.begin.resize(count);
  outline.backward.resize(count);
  std::int64_t line = 0;
  for (const std::int32_t i : outline.index.of_rank) {
    outline.begin[at(i)] = line;
    line += outline.quota[at(i)];
    outline.backward[at(i)] = points_between(outline.begin[at(i)], line, draw);
  }
}

/// The line by experts; kept pairs are split over the instances anew.
void keep_of_experts(const RouteInput& input, const Prefixes& offered, RouteScratch& scratch) {
  Outline& outline = scratch.outline;
  const InstanceIndex& index = outline.index;
  const Counts& counts = input.listed != nullptr ? *input.listed : input.demand;
  outline.begin.resize(outline.quota.size());
  scratch.kept.resize(outline.quota.size());
  std::int64_t line = 0;
  for (std::size_t e = 0; e < outline.quota.size(); ++e) {
    outline.begin[e] = line;
    line += outline.quota[e];
    scratch.kept[e] = points_between(outline.begin[e], line, input.draw);
  }
  scratch.kept_local.assign(at(index.size()), 0);
  for (std::size_t e = 0; e < outline.quota.size(); ++e) {
    const auto end = at(index.begin[e + 1]);
    if (end - at(index.begin[e]) < 2) {
      continue;  // nobody asks
    }
    for (auto i = at(index.begin[e]); i < end; ++i) {
      const std::int64_t pairs = counts.at(index.rank[i], index.expert[i]);
      if (pairs > 0) {
        const std::int64_t before = offered.before_self[i];
        scratch.kept_local[i] =
            kept_before(outline, input.draw, e, before + pairs, offered.all[e]) -
            kept_before(outline, input.draw, e, before, offered.all[e]);
      }
    }
  }
  scratch.node_pairs.clear();
  const auto experts = outline.quota.size();
  if (node_count(input.cluster) > 1) {
    for (std::size_t i = experts; i < offered.before_node.size(); ++i) {
      const std::size_t e = i % experts;
      const std::int64_t all = std::max<std::int64_t>(offered.all[e], 1);
      scratch.node_pairs.push_back(
          kept_before(outline, input.draw, e, offered.before_node[i], all) -
          kept_before(outline, input.draw, e, offered.before_node[i - experts], all));
    }
  }
  outline.backward.resize(at(index.size()));
  split_locally(input.cluster, index, scratch.kept, scratch.kept_local, scratch, outline.backward);
}

}  // namespace

void Outline::clear() {
  keep_all = true;
  score = false;
  by_instance = false;
  quota.clear();
  begin.clear();
  backward.clear();
  added_variance = 0.0;
  notes.clear();
}

void outline_forward(const RouteInput& input, int rank, RouteScratch& scratch) {
  Outline& outline = scratch.outline;
  outline.clear();
  outline.index.build(input.placement, input.cluster.experts);
  outline.demand.build(input.cluster, input.demand, outline.index, rank);
  const auto count = at(outline.index.size());
  scratch.local.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    scratch.local[i] = input.demand.at(outline.index.rank[i], outline.index.expert[i]);
  }
  pairs_of_nodes(input.cluster, outline.demand.before_node, scratch.node_pairs);
  outline.forward.resize(count);
  split_locally(input.cluster, outline.index, outline.demand.all, scratch.local, scratch,
                outline.forward);
}

void outline_backward(const RouteInput& input, const LrmoeOptions& options, int rank,
                      std::span<const std::int64_t> listed_loads, RouteScratch& scratch) {
  LRMOE_ASSERT(input.draw >= 0 && input.draw < kOne, "[route] the draw is not in [0, 1)");
  Outline& outline = scratch.outline;
  const Cluster& cluster = input.cluster;
  const PriceTable& prices = prices_of(input.curves, cluster.experts, scratch.flat);
  if (input.listed != nullptr) {
    outline.listed.build(cluster, *input.listed, outline.index, rank);
  }
  const Prefixes& offered = input.listed != nullptr ? outline.listed : outline.demand;
  const std::int64_t all = total(offered.all);
  QuotaSettings settings = quota_settings(options, prices, offered.all);
  if (all == 0 || (settings.ratio >= kOne && input.listed == nullptr)) {
    return;
  }
  // The ratio is of all pairs, also where only those listed can be kept.
  settings.ratio = std::min(mul_div(settings.ratio, total(outline.demand.all), all), kOne);
  if (settings.ratio == kOne && input.listed != nullptr) {
    outline.notes.push_back(
        "the shortlist holds fewer pairs than the ratio asks for: all of it is kept");
  }
  outline.by_instance = options.activations == Activations::keep;
  Quotas& quotas = scratch.quotas;
  if (outline.by_instance) {
    quota_of_instances(prices, outline.index,
                       input.listed != nullptr ? listed_loads : outline.forward, settings, quotas);
  } else {
    quota_of_experts(prices, offered.all, outline.index, scratch.balancer, settings, quotas);
  }
  outline.added_variance = quotas.added_variance;
  if (options.mode == SelectMode::top) {
    outline.added_variance = 0.0;  // not sampled: biased, but without variance
  }
  if (options.variance_limit > 0.0 && outline.added_variance > options.variance_limit) {
    outline.notes.push_back("all pairs are kept: the predicted added variance " +
                            print_number(outline.added_variance) + " is above variance_limit " +
                            print_number(options.variance_limit));
    outline.added_variance = 0.0;
    outline.score = true;
    return;
  }
  if (quotas.raised) {
    outline.notes.push_back(
        "the experts' instances are too few to retain the ratio within the "
        "slack: the fullest rank's backward load is " +
        percent_above_mean(quotas.capacity, all * settings.ratio, cluster.ranks) +
        " above the mean");
  }
  outline.keep_all = false;
  outline.quota.assign(quotas.quota.begin(), quotas.quota.end());
  if (outline.by_instance) {
    keep_at_instances(outline, input.draw);
  } else {
    keep_of_experts(input, offered, scratch);
  }
}

}  // namespace lrmoe::plan
