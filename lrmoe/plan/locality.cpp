#include "lrmoe/plan/locality.h"

#include <algorithm>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

void Localizer::group(std::span<const std::int64_t> node_pairs, int ranks_per_node) {
  const InstanceIndex& index = *index_;
  groups_.clear();
  group_begin_.clear();
  group_of_.assign(at(index.size()), -1);
  for (std::int32_t e = 0; e < index.experts; ++e) {
    group_begin_.push_back(static_cast<std::int32_t>(groups_.size()));
    const std::int32_t end = index.begin[at(e) + 1];
    for (std::int32_t i = index.begin[at(e)]; i < end && index.count(e) > 1;) {
      const std::int32_t node = index.rank[at(i)] / ranks_per_node;
      Group group{e, i, i, node_pairs[at(node * index.experts + e)], 0};
      for (; group.end < end && index.rank[at(group.end)] / ranks_per_node == node; ++group.end) {
        group_of_[at(group.end)] = static_cast<std::int32_t>(groups_.size());
      }
      i = group.end;
      groups_.push_back(group);
    }
  }
  group_begin_.push_back(static_cast<std::int32_t>(groups_.size()));
}

void Localizer::give(std::int32_t instance, std::int64_t amount) {
  Group& group = groups_[at(group_of_[at(instance)])];
  std::int64_t& left = left_[at(group.expert)];
  std::int64_t& load = load_[at(index_->rank[at(instance)])];
  amount = std::min({amount, left, threshold_ - load, group.here - group.flow});
  if (amount > 0) {
    flow_[at(instance)] += amount;
    group.flow += amount;
    left -= amount;
    load += amount;
  }
}

void Localizer::relax(std::int32_t node, std::int32_t distance) {
  if (distance < distance_[at(node)]) {
    distance_[at(node)] = distance;
    if (queued_[at(node)] == 0) {
      queued_[at(node)] = 1;
      queue_.push_back(node);
    }
  }
}

bool Localizer::measure() {
  const InstanceIndex& index = *index_;
  std::fill(distance_.begin(), distance_.end(), kFar);
  std::fill(queued_.begin(), queued_.end(), 0);
  std::fill(done_.begin(), done_.end(), 0);
  queue_.clear();
  sink_ = kFar;
  for (std::int32_t e = 0; e < index.experts; ++e) {
    if (left_[at(e)] > 0) {
      relax(e, 0);
    }
  }
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const std::int32_t node = queue_[head];
    queued_[at(node)] = 0;
    const std::int32_t far = distance(node);
    if (node < index.experts) {
      for (std::int32_t g = group_begin_[at(node)]; g < group_begin_[at(node) + 1]; ++g) {
        relax(group_node(g), far + (groups_[at(g)].flow < groups_[at(g)].here ? 0 : 1));
      }
    } else if (node < first_rank_) {
      const Group& group = groups_[at(node - index.experts)];
      for (std::int32_t i = group.begin; i < group.end; ++i) {
        relax(rank_node(index.rank[at(i)]), far);
      }
      if (group.flow > 0) {
        relax(group.expert, far - (group.flow > group.here ? 1 : 0));
      }
    } else {
      const std::int32_t r = node - first_rank_;
      if (load_[at(r)] < threshold_) {
        sink_ = std::min(sink_, far);
      }
      for (const std::int32_t i : index.on_rank(r)) {
        if (group_of_[at(i)] >= 0 && flow_[at(i)] > 0) {
          relax(group_node(group_of_[at(i)]), far);
        }
      }
    }
  }
  return sink_ != kFar;
}

/// Sends up to `limit` from a node to ranks with room, along cheapest ways only. A node
/// is entered once in each round: ways through one that is being visited, or could not
/// take all, are found in the next.
std::int64_t Localizer::push(std::int32_t node, std::int64_t limit) {
  if (done_[at(node)] != 0) {
    return 0;
  }
  done_[at(node)] = 1;
  const std::int64_t sent = node < index_->experts ? push_expert(node, limit)
                            : node < first_rank_   ? push_group(node - index_->experts, limit)
                                                   : push_rank(node - first_rank_, limit);
  if (sent == limit) {
    done_[at(node)] = 0;  // it may take more
  }
  return sent;
}

std::int64_t Localizer::push_expert(std::int32_t e, std::int64_t limit) {
  std::int64_t sent = 0;
  for (std::int32_t g = group_begin_[at(e)]; g < group_begin_[at(e) + 1]; ++g) {
    Group& group = groups_[at(g)];
    for (const std::int32_t cost : {0, 1}) {
      const std::int64_t room =
          cost == 0 ? std::max<std::int64_t>(group.here - group.flow, 0) : limit;
      const std::int64_t amount = std::min(limit - sent, room);
      if (amount > 0 && distance(group_node(g)) == distance(e) + cost) {
        // The flow is entered first: on its way it may meet this group again.
        group.flow += amount;
        const std::int64_t moved = push(group_node(g), amount);
        group.flow -= amount - moved;
        sent += moved;
      }
    }
  }
  return sent;
}

std::int64_t Localizer::push_group(std::int32_t g, std::int64_t limit) {
  std::int64_t sent = 0;
  Group& group = groups_[at(g)];
  for (std::int32_t i = group.begin; i < group.end && sent < limit; ++i) {
    const std::int32_t to = rank_node(index_->rank[at(i)]);
    if (distance(to) == distance(group_node(g))) {
      const std::int64_t moved = push(to, limit - sent);
      flow_[at(i)] += moved;
      sent += moved;
    }
  }
  // Back to the expert, which then takes another node: pairs that cross first.
  const std::int64_t crossing = std::max<std::int64_t>(group.flow - group.here, 0);
  const std::int32_t saved = crossing > 0 ? 1 : 0;
  const std::int64_t back = std::min(limit - sent, crossing > 0 ? crossing : group.flow);
  if (back > 0 && distance(group.expert) == distance(group_node(g)) - saved) {
    const std::int64_t moved = push(group.expert, back);
    group.flow -= moved;
    sent += moved;
  }
  return sent;
}

std::int64_t Localizer::push_rank(std::int32_t r, std::int64_t limit) {
  std::int64_t sent = 0;
  if (distance(rank_node(r)) == sink_) {
    sent = std::min(limit, std::max<std::int64_t>(threshold_ - load_[at(r)], 0));
    load_[at(r)] += sent;
  }
  for (const std::int32_t i : index_->on_rank(r)) {
    const std::int32_t g = group_of_[at(i)];
    const std::int64_t amount = std::min(limit - sent, flow_[at(i)]);
    if (g >= 0 && amount > 0 && distance(group_node(g)) == distance(rank_node(r))) {
      const std::int64_t moved = push(group_node(g), amount);
      flow_[at(i)] -= moved;
      sent += moved;
    }
  }
  return sent;
}

void Localizer::split(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                      std::span<const std::int64_t> local, std::span<const std::int64_t> node_pairs,
                      int ranks_per_node, std::int64_t threshold, std::span<std::int64_t> loads) {
  index_ = &index;
  flow_ = loads;
  threshold_ = threshold;
  group(node_pairs, ranks_per_node);
  first_rank_ = index.experts + static_cast<std::int32_t>(groups_.size());
  const std::size_t nodes = at(first_rank_ + index.ranks);
  distance_.resize(nodes);
  queued_.resize(nodes);
  done_.resize(nodes);
  std::fill(loads.begin(), loads.end(), 0);
  left_.assign(pairs.begin(), pairs.end());
  load_.assign(at(index.ranks), 0);
  for (std::int32_t e = 0; e < index.experts; ++e) {
    if (index.count(e) == 1) {
      const std::int32_t i = index.begin[at(e)];
      loads[at(i)] = pairs[at(e)];
      load_[at(index.rank[at(i)])] += pairs[at(e)];
      left_[at(e)] = 0;
    }
  }
  for (const bool rank_first : {true, false}) {
    for (std::size_t i = 0; i < loads.size(); ++i) {
      if (group_of_[i] >= 0) {
        give(static_cast<std::int32_t>(i), rank_first ? local[i] : threshold);
      }
    }
  }
  while (measure()) {
    for (std::int32_t e = 0; e < index.experts; ++e) {
      if (left_[at(e)] > 0) {
        left_[at(e)] -= push(e, left_[at(e)]);
      }
    }
  }
  LRMOE_ASSERT(std::all_of(left_.begin(), left_.end(), [](auto v) { return v == 0; }),
               "[split] the threshold is too low");
}

}  // namespace lrmoe::plan
