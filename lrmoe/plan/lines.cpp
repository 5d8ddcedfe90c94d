#include "lrmoe/plan/lines.h"

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// An expert's instances in one node.
struct NodeShare {
  std::int32_t end = 0;      // behind its last instance there
  std::int64_t local = 0;    // pairs that stay on their rank
  std::int64_t matched = 0;  // pairs that stay in the node besides
};

NodeShare node_share(const Lines& lines, int expert, std::int32_t first, std::int32_t end) {
  const int node = lines.index->rank[at(first)] / lines.width;
  NodeShare share{first};
  std::int64_t open = 0;
  for (; share.end < end && lines.index->rank[at(share.end)] / lines.width == node; ++share.end) {
    share.local += lines.local[at(share.end)];
    open += lines.loads[at(share.end)] - lines.local[at(share.end)];
  }
  const std::int64_t supply =
      lines.node_start(node + 1, expert) - lines.node_start(node, expert) - share.local;
  share.matched = std::min(supply, open);
  return share;
}

}  // namespace

int node_width(const Cluster& cluster) {
  return cluster.ranks_per_node > 0 && cluster.ranks_per_node < cluster.ranks
             ? cluster.ranks_per_node
             : cluster.ranks;
}

int node_count(const Cluster& cluster) {
  return (cluster.ranks + node_width(cluster) - 1) / node_width(cluster);
}

void Prefixes::build(const Cluster& cluster, const Counts& counts, const InstanceIndex& index,
                     int rank) {
  const auto experts = at(counts.cols);
  const int width = node_width(cluster);
  all.assign(experts, 0);
  before_rank.assign(experts, 0);
  before_self.resize(index.rank.size());
  before_node.clear();
  std::int32_t negative = 0;
  for (int r = 0; r < counts.rows; ++r) {
    if (r % width == 0) {
      before_node.insert(before_node.end(), all.begin(), all.end());
    }
    if (r == rank) {
      std::copy(all.begin(), all.end(), before_rank.begin());
    }
    for (const std::int32_t i : index.on_rank(r)) {
      before_self[at(i)] = all[at(index.expert[at(i)])];
    }
    const std::int32_t* row = counts.row(r).data();
    std::int64_t* sums = all.data();
    for (std::size_t e = 0; e < experts; ++e) {
      sums[e] += row[e];
      negative |= row[e];
    }
  }
  before_node.insert(before_node.end(), all.begin(), all.end());
  LRMOE_ASSERT(negative >= 0, "[route] a demand is negative");
}

void SourceRoutes::find(const Lines& lines, int expert, int source, std::int64_t before,
                        std::int64_t count) {
  const auto instances = at(lines.index->count(expert));
  sent.resize(instances);
  before_sent.resize(instances);
  if (instances == 1) {
    sent[0] = count;
    before_sent[0] = before;
  } else if (lines.before_node.empty()) {
    within_one_node(lines, expert, source, before, count);
  } else {
    over_nodes(lines, expert, source, before, count);
  }
}

void SourceRoutes::within_one_node(const Lines& lines, int expert, int source, std::int64_t before,
                                   std::int64_t count) {
  const auto first = at(lines.index->begin[at(expert)]);
  const std::int32_t* rank = lines.index->rank.data() + first;
  const std::int64_t* local = lines.local.data() + first;
  const std::int64_t* load = lines.loads.data() + first;
  for (std::size_t j = 0; j < sent.size(); ++j) {
    const bool own = rank[j] == source;
    const bool passed = rank[j] < source;
    sent[j] = own ? local[j] : 0;
    before_sent[j] = passed ? local[j] : 0;
    count -= sent[j];
    before -= before_sent[j];
  }
  std::int64_t begin = 0;
  for (std::size_t j = 0; j < sent.size(); ++j) {
    const std::int64_t length = load[j] - local[j];
    sent[j] += overlap(begin, length, before, before + count);
    before_sent[j] += overlap(begin, length, 0, before);
    begin += length;
  }
}

void SourceRoutes::over_nodes(const Lines& lines, int expert, int source, std::int64_t before,
                              std::int64_t count) {
  const InstanceIndex& index = *lines.index;
  const std::int32_t first = index.begin[at(expert)];
  const std::int32_t end = index.begin[at(expert) + 1];
  const int node = source / lines.width;
  const std::int64_t start = lines.node_start(node, expert);
  // Where this source stands: on its node's line, and on that of what nodes leave.
  std::int64_t in_node = before - start;
  std::int64_t matched = 0;
  std::int64_t rest = start;
  for (std::int32_t i = first; i < end;) {
    const int there = index.rank[at(i)] / lines.width;
    const NodeShare share = node_share(lines, expert, i, end);
    if (there < node) {
      rest -= share.local + share.matched;
    } else if (there == node) {
      matched = share.matched;
      for (std::int32_t j = i; j < share.end; ++j) {
        in_node -= index.rank[at(j)] < source ? lines.local[at(j)] : 0;
        count -= index.rank[at(j)] == source ? lines.local[at(j)] : 0;
      }
    }
    i = share.end;
  }
  const std::int64_t stays = overlap(in_node, count, 0, matched);
  rest += std::max<std::int64_t>(in_node - matched, 0);
  std::int64_t rest_begin = 0;
  for (std::int32_t i = first; i < end;) {
    const int there = index.rank[at(i)] / lines.width;
    const NodeShare share = node_share(lines, expert, i, end);
    std::int64_t begin = 0;
    for (; i < share.end; ++i) {
      const std::int64_t length = lines.loads[at(i)] - lines.local[at(i)];
      const std::int64_t here = overlap(begin, length, 0, share.matched);
      std::int64_t& to = sent[at(i - first)];
      std::int64_t& earlier = before_sent[at(i - first)];
      to = index.rank[at(i)] == source ? lines.local[at(i)] : 0;
      earlier = index.rank[at(i)] < source ? lines.local[at(i)] : 0;
      if (there == node) {
        to +=
            overlap(begin, length, std::min(in_node, matched), std::min(in_node, matched) + stays);
        earlier += overlap(begin, length, 0, std::min(in_node, matched));
      } else if (there < node) {
        earlier += here;
      }
      to += overlap(rest_begin, length - here, rest, rest + count - stays);
      earlier += overlap(rest_begin, length - here, 0, rest);
      begin += length;
      rest_begin += length - here;
    }
  }
}

Arrivals::Arrivals(const Lines& lines, std::int32_t instance)
    : lines_(&lines),
      expert_(lines.index->expert[at(instance)]),
      rank_(lines.index->rank[at(instance)]),
      first_(lines.index->begin[at(expert_)]),
      end_(lines.index->begin[at(expert_) + 1]),
      local_(lines.local[at(instance)]),
      next_local_(first_),
      next_node_(first_) {
  if (end_ - first_ == 1) {
    return;
  }
  if (lines.before_node.empty()) {
    for (std::int32_t i = first_; i < instance; ++i) {
      rest_begin_ += lines.loads[at(i)] - lines.local[at(i)];
    }
    rest_length_ = lines.loads[at(instance)] - local_;
    return;
  }
  for (std::int32_t i = first_; i <= instance;) {
    const NodeShare share = node_share(lines, expert_, i, end_);
    std::int64_t begin = 0;
    for (; i < share.end && i <= instance; ++i) {
      const std::int64_t length = lines.loads[at(i)] - lines.local[at(i)];
      const std::int64_t here = overlap(begin, length, 0, share.matched);
      if (i == instance) {
        node_begin_ = begin;
        node_length_ = here;
        rest_length_ = length - here;
      } else {
        rest_begin_ += length - here;
      }
      begin += length;
    }
  }
}

void Arrivals::start_node() {
  in_node_ = 0;
  matched_ = 0;
  if (next_node_ < end_ &&
      lines_->index->rank[at(next_node_)] / lines_->width == source_ / lines_->width) {
    const NodeShare share = node_share(*lines_, expert_, next_node_, end_);
    matched_ = share.matched;
    next_node_ = share.end;
  }
}

std::int64_t Arrivals::next(std::int64_t count) {
  if (end_ - first_ == 1) {
    return count;
  }
  if (!lines_->before_node.empty() && source_ % lines_->width == 0) {
    start_node();
  }
  std::int64_t got = 0;
  if (next_local_ < end_ && lines_->index->rank[at(next_local_)] == source_) {
    const std::int64_t stays = lines_->local[at(next_local_++)];
    got += source_ == rank_ ? stays : 0;
    count -= stays;
  }
  const std::int64_t in_node = overlap(in_node_, count, 0, matched_);
  if (source_ / lines_->width == rank_ / lines_->width) {
    got += overlap(node_begin_, node_length_, std::min(in_node_, matched_),
                   std::min(in_node_, matched_) + in_node);
  }
  const std::int64_t rest = count - in_node;
  got += overlap(rest_begin_, rest_length_, left_, left_ + rest);
  in_node_ += count;
  left_ += rest;
  ++source_;
  return got;
}

}  // namespace lrmoe::plan
