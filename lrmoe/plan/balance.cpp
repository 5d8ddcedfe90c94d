#include "lrmoe/plan/balance.h"

#include <algorithm>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

void Balancer::know(const InstanceIndex& index) {
  index_ = &index;
  if (known_begin_ == index.begin && known_rank_ == index.rank) {
    return;
  }
  known_begin_ = index.begin;
  known_rank_ = index.rank;
  none_.clear();
  singles_.clear();
  several_.clear();
  multi_.clear();
  for (std::int32_t e = 0; e < index.experts; ++e) {
    const std::int32_t first = index.begin[at(e)];
    const std::int32_t count = index.begin[at(e) + 1] - first;
    if (count == 0) {
      none_.push_back(e);
    } else if (count == 1) {
      singles_.push_back({e, first, index.rank[at(first)]});
    } else {
      several_.push_back(e);
    }
  }
}

void Balancer::start(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                     std::span<std::int64_t> loads) {
  know(index);
  flow_ = loads;
  std::fill(loads.begin(), loads.end(), 0);
  left_.assign(pairs.begin(), pairs.end());
  load_.assign(at(index.ranks), 0);
  for (const std::int32_t e : none_) {
    LRMOE_ASSERT(pairs[at(e)] == 0, "[split] an expert with pairs has no instance");
  }
  for (const Single& single : singles_) {
    const std::int64_t here = pairs[at(single.expert)];
    loads[at(single.instance)] = here;
    load_[at(single.rank)] += here;
    left_[at(single.expert)] = 0;
  }
  fixed_ = load_;
  left_over_ = 0;
  multi_now_.clear();
  for (const std::int32_t e : several_) {
    if (pairs[at(e)] > 0) {
      multi_now_.push_back(e);
      left_over_ += pairs[at(e)];
    }
  }
  if (multi_now_ != multi_ || multi_.empty()) {
    multi_.swap(multi_now_);
    plant();
  }
}

std::int64_t Balancer::give(std::int32_t instance, std::int64_t amount) {
  const std::size_t e = at(index_->expert[at(instance)]);
  const std::size_t r = at(index_->rank[at(instance)]);
  amount = std::min({amount, left_[e], threshold_ - load_[r]});
  if (amount <= 0) {
    return 0;
  }
  flow_[at(instance)] += amount;
  left_[e] -= amount;
  load_[r] += amount;
  left_over_ -= amount;
  return amount;
}

void Balancer::seed_local(std::span<const std::int64_t> local) {
  for (const std::int32_t e : multi_) {
    for (std::int32_t i = index_->begin[at(e)]; i < index_->begin[at(e) + 1]; ++i) {
      give(i, local[at(i)]);
    }
  }
}

/// What is left of each expert fills its ranks up to one height.
void Balancer::level_out() {
  for (const std::int32_t e : multi_) {
    const std::int64_t amount = left_[at(e)];
    if (amount == 0) {
      continue;
    }
    const std::int32_t first = index_->begin[at(e)];
    const std::int32_t end = index_->begin[at(e) + 1];
    heights_.clear();
    for (std::int32_t i = first; i < end; ++i) {
      heights_.push_back(load_[at(index_->rank[at(i)])]);
    }
    std::sort(heights_.begin(), heights_.end());
    // The lowest ranks that hold it all at or below the height of the next.
    std::int64_t below = amount;
    std::size_t n = 0;
    do {
      below += heights_[n++];
    } while (n < heights_.size() && below > heights_[n] * static_cast<std::int64_t>(n));
    const auto count = static_cast<std::int64_t>(n);
    const std::int64_t height = (below + count - 1) / count;
    for (std::int32_t i = first; i < end; ++i) {
      give(i, height - load_[at(index_->rank[at(i)])]);
    }
  }
}

/// Placements are nearly forests, where long ways are the only ones: what is left
/// over passes along a spanning forest at once, and not a level at a time.
void Balancer::plant() {
  multi_begin_.clear();
  multi_at_.clear();
  multi_of_.clear();
  for (std::int32_t r = 0; r < index_->ranks; ++r) {
    multi_begin_.push_back(static_cast<std::int32_t>(multi_at_.size()));
    for (const std::int32_t i : index_->on_rank(r)) {
      if (left_[at(index_->expert[at(i)])] > 0) {
        multi_at_.push_back(i);
        multi_of_.push_back(index_->expert[at(i)]);
      }
    }
  }
  multi_begin_.push_back(static_cast<std::int32_t>(multi_at_.size()));
  forest_.clear();
  const std::int32_t experts = index_->experts;
  planted_.assign(at(experts + index_->ranks), 0);
  const auto add = [&](std::int32_t id, std::int32_t edge) {
    if (planted_[at(id)] == 0) {
      planted_[at(id)] = 1;
      forest_.push_back({id, edge, 0, 0, 0, 0});
    }
  };
  std::size_t head = 0;
  for (const std::int32_t root : multi_) {
    add(root, -1);
    for (; head < forest_.size(); ++head) {
      const std::int32_t id = forest_[head].id;
      forest_[head].first_child = static_cast<std::int32_t>(forest_.size());
      if (id < experts) {
        for (std::int32_t i = index_->begin[at(id)]; i < index_->begin[at(id) + 1]; ++i) {
          add(experts + index_->rank[at(i)], i);
        }
      } else {
        const std::size_t r = at(id - experts);
        for (std::int32_t m = multi_begin_[r]; m < multi_begin_[r + 1]; ++m) {
          add(multi_of_[at(m)], multi_at_[at(m)]);
        }
      }
      forest_[head].end_child = static_cast<std::int32_t>(forest_.size());
    }
  }
}

void Balancer::settle() {
  const std::int32_t experts = index_->experts;
  for (Node& node : forest_) {
    node.net = node.id < experts ? left_[at(node.id)] : load_[at(node.id - experts)] - threshold_;
  }
  // Upwards: an expert may send any amount to a rank; back comes at most its flow there.
  for (auto node = forest_.rbegin(); node != forest_.rend(); ++node) {
    for (std::int32_t c = node->first_child; c < node->end_child; ++c) {
      Node& child = forest_[at(c)];
      const std::int64_t back = flow_[at(child.edge)];
      child.up = child.id < experts ? std::max(child.net, -back) : std::min(child.net, back);
      node->net += child.up;
    }
    node->up = 0;
  }
  // Downwards: what really passes; `up` of this node is settled by then.
  for (Node& node : forest_) {
    const bool expert = node.id < experts;
    const std::int64_t own =
        expert ? left_[at(node.id)] : load_[at(node.id - experts)] - threshold_;
    // What the forest cannot take stays with this expert, or with the children.
    std::int64_t beyond = std::max<std::int64_t>(node.net - node.up, 0);
    if (expert) {
      beyond -= std::min(beyond, std::max<std::int64_t>(own, 0));
    }
    // Room that is not needed stays free, this rank's own last.
    std::int64_t spare = std::max<std::int64_t>(node.up - node.net, 0);
    for (std::int32_t c = node.first_child; c < node.end_child; ++c) {
      Node& child = forest_[at(c)];
      if (child.up > 0) {
        const std::int64_t stays = std::min(beyond, child.up);
        child.up -= stays;
        beyond -= stays;
      } else {
        const std::int64_t unused = std::min(spare, -child.up);
        child.up += unused;
        spare -= unused;
      }
    }
  }
  for (const Node& node : forest_) {
    if (node.edge >= 0 && node.up != 0) {
      const std::int64_t more = node.id < experts ? node.up : -node.up;
      flow_[at(node.edge)] += more;
      left_[at(index_->expert[at(node.edge)])] -= more;
      load_[at(index_->rank[at(node.edge)])] += more;
    }
  }
  left_over_ = 0;
  for (const std::int32_t e : multi_) {
    left_over_ += left_[at(e)];
  }
}

bool Balancer::reach() {
  expert_level_.assign(at(index_->experts), kFar);
  rank_level_.assign(at(index_->ranks), kFar);
  queue_.clear();
  for (const std::int32_t e : multi_) {
    if (left_[at(e)] > 0) {
      expert_level_[at(e)] = 0;
      queue_.push_back(e);
    }
  }
  bool room = false;
  std::size_t head = 0;
  // One layer of experts at a time, until a layer of ranks has room.
  while (head < queue_.size() && !room) {
    const std::size_t layer_end = queue_.size();
    for (; head < layer_end; ++head) {
      const std::int32_t e = queue_[head];
      const std::int32_t level = expert_level_[at(e)];
      for (std::int32_t i = index_->begin[at(e)]; i < index_->begin[at(e) + 1]; ++i) {
        const std::int32_t r = index_->rank[at(i)];
        if (rank_level_[at(r)] != kFar) {
          continue;
        }
        rank_level_[at(r)] = level + 1;
        room = room || load_[at(r)] < threshold_;
        room_level_ = level + 1;
        if (room) {
          continue;  // no way goes further
        }
        for (std::int32_t m = multi_begin_[at(r)]; m < multi_begin_[at(r) + 1]; ++m) {
          const std::int32_t other = multi_of_[at(m)];
          if (expert_level_[at(other)] == kFar && flow_[at(multi_at_[at(m)])] > 0) {
            expert_level_[at(other)] = level + 2;
            queue_.push_back(other);
          }
        }
      }
    }
  }
  return room;
}

std::int64_t Balancer::push_rank(std::int32_t r, std::int64_t limit) {
  std::int64_t sent = std::min(limit, std::max<std::int64_t>(threshold_ - load_[at(r)], 0));
  load_[at(r)] += sent;
  const std::int32_t level = rank_level_[at(r)];
  if (level == room_level_) {
    return sent;
  }
  for (auto& m = rank_next_[at(r)]; m < multi_begin_[at(r) + 1] && sent < limit; ++m) {
    const std::int32_t i = multi_at_[at(m)];
    const std::int32_t e = multi_of_[at(m)];
    if (expert_level_[at(e)] == level + 1 && flow_[at(i)] > 0) {
      const std::int64_t moved = push_expert(e, std::min(limit - sent, flow_[at(i)]));
      flow_[at(i)] -= moved;
      sent += moved;
      if (sent == limit) {
        break;  // this way may have more to give
      }
    }
  }
  return sent;
}

std::int64_t Balancer::push_expert(std::int32_t e, std::int64_t limit) {
  std::int64_t sent = 0;
  const std::int32_t level = expert_level_[at(e)];
  for (auto& i = expert_next_[at(e)]; i < index_->begin[at(e) + 1]; ++i) {
    const std::int32_t r = index_->rank[at(i)];
    if (rank_level_[at(r)] == level + 1) {
      const std::int64_t moved = push_rank(r, limit - sent);
      flow_[at(i)] += moved;
      sent += moved;
      if (sent == limit) {
        break;
      }
    }
  }
  return sent;
}

void Balancer::run() {
  if (left_over_ > 0) {
    settle();
  }
  while (left_over_ > 0 && reach()) {
    expert_next_.assign(index_->begin.begin(), index_->begin.end() - 1);
    rank_next_.assign(multi_begin_.begin(), multi_begin_.end() - 1);
    for (const std::int32_t e : multi_) {
      if (left_[at(e)] > 0) {
        const std::int64_t sent = push_expert(e, left_[at(e)]);
        left_[at(e)] -= sent;
        left_over_ -= sent;
      }
    }
  }
}

/// After a run that left pairs over: its cut's experts have all their ranks in the cut.
void Balancer::raise(std::span<const std::int64_t> pairs) {
  std::int64_t stuck = 0;
  std::int64_t full = 0;
  for (const std::int32_t e : multi_) {
    stuck += expert_level_[at(e)] != kFar ? pairs[at(e)] : 0;
  }
  for (std::size_t r = 0; r < load_.size(); ++r) {
    if (rank_level_[r] != kFar) {
      stuck += fixed_[r];
      ++full;
    }
  }
  const std::int64_t next = (stuck + full - 1) / full;
  LRMOE_ASSERT(next > threshold_, "[split] the threshold does not rise");
  threshold_ = next;
}

std::int64_t Balancer::split(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                             std::span<const std::int64_t> local, std::span<std::int64_t> loads) {
  start(index, pairs, loads);
  std::int64_t all = left_over_;
  std::int64_t largest = 0;
  for (const std::int64_t load : fixed_) {
    all += load;
    largest = std::max(largest, load);
  }
  threshold_ = std::max((all + index.ranks - 1) / index.ranks, largest);
  if (!local.empty()) {
    seed_local(local);
  }
  level_out();
  run();
  while (left_over_ > 0) {
    raise(pairs);
    run();
  }
  return *std::max_element(load_.begin(), load_.end());
}

std::int64_t Balancer::fill(const InstanceIndex& index, std::span<const std::int64_t> pairs,
                            std::int64_t threshold, std::span<std::int64_t> loads) {
  start(index, pairs, loads);
  threshold_ = threshold;
  std::int64_t beyond = 0;  // of fixed load
  for (const std::int64_t load : fixed_) {
    beyond += std::max<std::int64_t>(load - threshold, 0);
  }
  level_out();
  run();
  return beyond + left_over_;
}

void Balancer::cut(std::vector<char>& experts, std::vector<char>& ranks) {
  LRMOE_ASSERT(!reach(), "[split] a cut of a flow that is not the largest");
  experts.assign(at(index_->experts), 0);
  ranks.assign(at(index_->ranks), 0);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r] = rank_level_[r] != kFar || fixed_[r] > threshold_ ? 1 : 0;
  }
  for (std::int32_t e = 0; e < index_->experts; ++e) {
    const std::int32_t first = index_->begin[at(e)];
    const bool alone = index_->begin[at(e) + 1] - first == 1;
    experts[at(e)] = alone ? ranks[at(index_->rank[at(first)])]
                           : static_cast<char>(expert_level_[at(e)] != kFar);
  }
}

}  // namespace lrmoe::plan
