#include "lrmoe/plan/excess.h"

#include <algorithm>

namespace lrmoe::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

constexpr int kNone = -1;
constexpr int kStart = -2;

}  // namespace

ReplicaFlow::ReplicaFlow(const Placement& placement, int experts)
    : ranks_(placement.rows), single_(at(experts), kNone), first_at_(at(placement.rows) + 1, 0) {
  std::vector<int> count(at(experts), 0);
  for (int r = 0; r < ranks_; ++r) {
    for (const std::int32_t e : placement.row(r)) {
      if (e >= 0) {
        ++count[at(e)];
        single_[at(e)] = r;
      }
    }
  }
  std::vector<int> node(at(experts), kNone);
  first_.push_back(0);
  for (int e = 0; e < experts; ++e) {
    if (count[at(e)] > 1) {
      single_[at(e)] = kNone;
      node[at(e)] = static_cast<int>(expert_.size());
      expert_.push_back(e);
      first_.push_back(first_.back() + count[at(e)]);
    }
  }
  const auto edges = at(first_.back());
  rank_.resize(edges);
  node_of_.resize(edges);
  flow_.resize(edges);
  std::vector<int> next(first_.begin(), first_.end() - 1);
  for (int r = 0; r < ranks_; ++r) {
    first_at_[at(r)] = static_cast<int>(edge_at_.size());
    for (const std::int32_t e : placement.row(r)) {
      if (e >= 0 && node[at(e)] >= 0) {
        const int i = node[at(e)];
        const int edge = next[at(i)]++;
        rank_[at(edge)] = r;
        node_of_[at(edge)] = i;
        edge_at_.push_back(edge);
      }
    }
  }
  first_at_[at(ranks_)] = static_cast<int>(edge_at_.size());
  room_.resize(at(ranks_));
  load_.resize(at(ranks_));
  left_.resize(expert_.size());
  from_node_.resize(expert_.size());
  from_rank_.resize(at(ranks_));
}

std::int64_t ReplicaFlow::carry(int last) {
  // Back along the path: what it can take, then take it.
  int start = node_of_[at(last)];
  std::int64_t amount = room_[at(rank_[at(last)])];
  while (from_node_[at(start)] != kStart) {
    const int taken = from_node_[at(start)];
    amount = std::min(amount, flow_[at(taken)]);
    start = node_of_[at(from_rank_[at(rank_[at(taken)])])];
  }
  amount = std::min(amount, left_[at(start)]);
  if (amount == 0) {
    return 0;
  }
  room_[at(rank_[at(last)])] -= amount;
  left_[at(start)] -= amount;
  for (int edge = last;;) {
    flow_[at(edge)] += amount;
    const int taken = from_node_[at(node_of_[at(edge)])];
    if (taken == kStart) {
      return amount;
    }
    flow_[at(taken)] -= amount;
    edge = from_rank_[at(rank_[at(taken)])];
  }
}

std::int64_t ReplicaFlow::augment() {
  std::fill(from_node_.begin(), from_node_.end(), kNone);
  std::fill(from_rank_.begin(), from_rank_.end(), kNone);
  queue_.clear();
  for (int i = 0; i < static_cast<int>(expert_.size()); ++i) {
    if (left_[at(i)] > 0) {
      queue_.push_back(i);
      from_node_[at(i)] = kStart;
    }
  }
  std::int64_t sent = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const int i = queue_[head];
    for (int edge = first_[at(i)]; edge < first_[at(i + 1)]; ++edge) {
      const int r = rank_[at(edge)];
      if (from_rank_[at(r)] != kNone) {
        continue;
      }
      from_rank_[at(r)] = edge;
      if (room_[at(r)] > 0) {
        sent += carry(edge);
      }
      for (int a = first_at_[at(r)]; a < first_at_[at(r + 1)]; ++a) {
        const int other = edge_at_[at(a)];
        const int j = node_of_[at(other)];
        if (flow_[at(other)] > 0 && from_node_[at(j)] == kNone) {
          from_node_[at(j)] = other;
          queue_.push_back(j);
        }
      }
    }
  }
  return sent;
}

void ReplicaFlow::level(int i) {
  const auto begin = at(first_[at(i)]);
  const auto end = at(first_[at(i + 1)]);
  order_.clear();
  for (std::size_t edge = begin; edge < end; ++edge) {
    std::int64_t& load = load_[at(rank_[edge])];
    load -= flow_[edge];
    order_.emplace_back(load, static_cast<int>(edge));
    if (end - begin < 16) {  // few: sorted as they come
      for (std::size_t j = order_.size() - 1; j > 0 && order_[j].first < order_[j - 1].first; --j) {
        std::swap(order_[j], order_[j - 1]);
      }
    }
  }
  if (end - begin >= 16) {
    std::sort(order_.begin(), order_.end());
  }
  // The least loaded ranks rise together until the weight is used up.
  std::int64_t water = left_[at(i)];
  std::size_t count = 1;
  std::int64_t base = order_[0].first;
  while (count < order_.size()) {
    const std::int64_t rise = order_[count].first - base;
    if (rise * static_cast<std::int64_t>(count) >= water) {
      break;
    }
    water -= rise * static_cast<std::int64_t>(count);
    base = order_[count++].first;
  }
  const auto n = static_cast<std::int64_t>(count);
  for (std::size_t j = 0; j < order_.size(); ++j) {
    const auto& [load, edge] = order_[j];
    const auto k = static_cast<std::int64_t>(j);
    const std::int64_t amount = j < count ? base - load + water * (k + 1) / n - water * k / n : 0;
    flow_[at(edge)] = amount;
    load_[at(rank_[at(edge)])] += amount;
  }
}

std::int64_t ReplicaFlow::excess(std::span<const std::int64_t> weights, std::int64_t mean) {
  std::fill(load_.begin(), load_.end(), 0);
  std::fill(flow_.begin(), flow_.end(), 0);
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (single_[e] >= 0) {
      load_[at(single_[e])] += weights[e];
    }
  }
  const std::int64_t above =
      std::max<std::int64_t>(*std::max_element(load_.begin(), load_.end()) - mean, 0);
  const int nodes = static_cast<int>(expert_.size());
  for (int i = 0; i < nodes; ++i) {
    left_[at(i)] = weights[at(expert_[at(i)])];
  }
  // Every expert levels its ranks, one after the other; what then still stands
  // above is taken back and sent by augmenting paths.
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (int i = 0; i < nodes; ++i) {
      level(i);
    }
  }
  std::fill(left_.begin(), left_.end(), 0);
  for (int r = 0; r < ranks_; ++r) {
    std::int64_t over = load_[at(r)] - mean - above;
    for (int a = first_at_[at(r)]; a < first_at_[at(r + 1)] && over > 0; ++a) {
      const auto edge = at(edge_at_[at(a)]);
      const std::int64_t back = std::min(over, flow_[edge]);
      flow_[edge] -= back;
      left_[at(node_of_[edge])] += back;
      over -= back;
      load_[at(r)] -= back;
    }
    room_[at(r)] = mean + above - load_[at(r)];
  }
  return above + send_rest();
}

void ReplicaFlow::loads(std::span<const std::int64_t> weights,
                        std::vector<std::int64_t>& out) const {
  out.clear();
  int node = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (single_[e] >= 0) {
      out.push_back(weights[e]);
    } else {
      for (int edge = first_[at(node)]; edge < first_[at(node + 1)]; ++edge) {
        out.push_back(flow_[at(edge)]);
      }
      ++node;
    }
  }
}

std::int64_t ReplicaFlow::send_rest() {
  std::int64_t raised = 0;
  for (;;) {
    std::int64_t left = 0;
    for (const std::int64_t l : left_) {
      left += l;
    }
    if (left == 0) {
      return raised;
    }
    if (augment() > 0) {
      continue;
    }
    // All that the search saw is full: its ranks take what is over together.
    std::int64_t full = 0;
    for (const int from : from_rank_) {
      full += from != kNone ? 1 : 0;
    }
    const std::int64_t more = (left + full - 1) / full;
    raised += more;
    for (std::int64_t& room : room_) {
      room += more;
    }
  }
}

}  // namespace lrmoe::plan
