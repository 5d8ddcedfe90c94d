#include "lrmoe/plan/flow.h"

#include <algorithm>
#include <limits>

namespace lrmoe::plan {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 4;

}  // namespace

InstanceFlow::InstanceFlow(const Instances& instances, int ranks)
    : experts_(static_cast<int>(instances.size())),
      ranks_(ranks),
      edges_(static_cast<std::size_t>(2 + experts_ + ranks)),
      depth_(edges_.size()),
      next_(edges_.size()) {
  for (int e = 0; e < experts_; ++e) {
    connect(kSource, expert_node(e), 0);
  }
  for (int r = 0; r < ranks_; ++r) {
    connect(rank_node(r), kSink, 0);
  }
  for (int e = 0; e < experts_; ++e) {
    for (const std::int32_t r : instances[static_cast<std::size_t>(e)]) {
      connect(expert_node(e), rank_node(r), kNoLimit);
    }
  }
}

void InstanceFlow::connect(int from, int to, std::int64_t room) {
  auto& out = edges_[static_cast<std::size_t>(from)];
  auto& in = edges_[static_cast<std::size_t>(to)];
  out.push_back({to, static_cast<int>(in.size()), room});
  in.push_back({from, static_cast<int>(out.size()) - 1, 0});
}

void InstanceFlow::raise_supply(int expert, std::int64_t by) {
  edges_[kSource][static_cast<std::size_t>(expert)].room += by;
}

void InstanceFlow::raise_capacity(int rank, std::int64_t by) {
  edges_[static_cast<std::size_t>(rank_node(rank))][0].room += by;
}

void InstanceFlow::push(Edge& edge, std::int64_t amount) {
  edge.room -= amount;
  edges_[static_cast<std::size_t>(edge.to)][static_cast<std::size_t>(edge.back)].room += amount;
}

std::int64_t InstanceFlow::seed(int expert, int rank, std::int64_t amount) {
  Edge& supply = edges_[kSource][static_cast<std::size_t>(expert)];
  Edge& sink = edges_[static_cast<std::size_t>(rank_node(rank))][0];
  for (Edge& edge : edges_[static_cast<std::size_t>(expert_node(expert))]) {
    if (edge.to == rank_node(rank)) {
      amount = std::min({amount, supply.room, sink.room});
      push(supply, amount);
      push(edge, amount);
      push(sink, amount);
      value_ += amount;
      return amount;
    }
  }
  return 0;
}

bool InstanceFlow::level() {
  std::fill(depth_.begin(), depth_.end(), -1);
  depth_[kSource] = 0;
  std::vector<int> queue{kSource};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const int node = queue[head];
    for (const Edge& edge : edges_[static_cast<std::size_t>(node)]) {
      int& depth = depth_[static_cast<std::size_t>(edge.to)];
      if (edge.room > 0 && depth < 0) {
        depth = depth_[static_cast<std::size_t>(node)] + 1;
        queue.push_back(edge.to);
      }
    }
  }
  return depth_[kSink] >= 0;
}

std::int64_t InstanceFlow::augment(int node, std::int64_t limit) {
  if (node == kSink) {
    return limit;
  }
  const auto n = static_cast<std::size_t>(node);
  std::int64_t sent = 0;
  for (; next_[n] < edges_[n].size(); ++next_[n]) {
    Edge& edge = edges_[n][next_[n]];
    if (edge.room > 0 && depth_[static_cast<std::size_t>(edge.to)] == depth_[n] + 1) {
      const std::int64_t amount = augment(edge.to, std::min(limit - sent, edge.room));
      push(edge, amount);
      sent += amount;
      if (sent == limit) {
        return sent;  // this edge may have room left
      }
    }
  }
  return sent;
}

std::int64_t InstanceFlow::run() {
  while (level()) {
    std::fill(next_.begin(), next_.end(), std::size_t{0});
    value_ += augment(kSource, kNoLimit);
  }
  return value_;
}

InstanceFlow::Cut InstanceFlow::cut() {
  level();
  Cut cut;
  for (int e = 0; e < experts_; ++e) {
    if (depth_[static_cast<std::size_t>(expert_node(e))] >= 0) {
      cut.experts.push_back(e);
    }
  }
  for (int r = 0; r < ranks_; ++r) {
    if (depth_[static_cast<std::size_t>(rank_node(r))] >= 0) {
      cut.ranks.push_back(r);
    }
  }
  return cut;
}

std::int64_t InstanceFlow::flow(int expert, std::size_t i) const {
  const Edge& edge = edges_[static_cast<std::size_t>(expert_node(expert))][1 + i];
  return edges_[static_cast<std::size_t>(edge.to)][static_cast<std::size_t>(edge.back)].room;
}

}  // namespace lrmoe::plan
