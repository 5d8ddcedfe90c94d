// The assignment of assign.h in closed form. An expert's sources lie on a line, one
// after the other, each as long as its pairs that do not stay on its rank; so do its
// instances, each as long as its load; what overlaps travels. So one source's routes
// need sums over the sources before it, and no other source's routes. With nodes the
// same is done within each node first, and then with what is left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/instances.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {

/// Sums over the first sources of a table [R, E].
struct Prefixes {
  std::vector<std::int64_t> all;          // [E] over all sources
  std::vector<std::int64_t> before_rank;  // [E] over the sources before one rank
  std::vector<std::int64_t> before_self;  // [I] over the sources before an instance's rank
  std::vector<std::int64_t> before_node;  // [(nodes + 1) * E] over the sources before a node

  /// rank -1: none. One pass over the table; InternalError where a count is negative.
  void build(const Cluster& cluster, const Counts& counts, const InstanceIndex& index, int rank);
};

/// Ranks of a node, and nodes: one node of all ranks where the cluster names none.
int node_width(const Cluster& cluster);
int node_count(const Cluster& cluster);

/// What one side of the plan (forward, backward) is made of.
struct Lines {
  const InstanceIndex* index = nullptr;
  int width = 1;                              // ranks of a node
  std::span<const std::int64_t> loads;        // [I]
  std::span<const std::int64_t> local;        // [I] pairs that stay on the instance's rank
  std::span<const std::int64_t> before_node;  // [(nodes + 1) * E]; empty: one node

  std::int64_t node_start(int node, int e) const {
    return before_node[static_cast<std::size_t>(node) * static_cast<std::size_t>(index->experts) +
                       static_cast<std::size_t>(e)];
  }
};

/// How much of [begin, begin + length) lies in [from, to).
inline std::int64_t overlap(std::int64_t begin, std::int64_t length, std::int64_t from,
                            std::int64_t to) {
  return std::max<std::int64_t>(std::min(begin + length, to) - std::max(begin, from), 0);
}

/// Of an expert's pairs at `source` (`count`, and `before` at the sources before it)
/// what goes to each of its instances: sent[j] pairs to the j-th, which got
/// before_sent[j] from the sources before.
class SourceRoutes {
 public:
  void find(const Lines& lines, int expert, int source, std::int64_t before, std::int64_t count);
  std::vector<std::int64_t> sent, before_sent;

 private:
  void within_one_node(const Lines& lines, int expert, int source, std::int64_t before,
                       std::int64_t count);
  void over_nodes(const Lines& lines, int expert, int source, std::int64_t before,
                  std::int64_t count);
};

/// What an instance gets from source 0, 1, ...: ask for each in turn.
class Arrivals {
 public:
  Arrivals(const Lines& lines, std::int32_t instance);
  std::int64_t next(std::int64_t count);

 private:
  void start_node();

  const Lines* lines_;
  std::int32_t expert_, rank_, first_, end_;
  std::int64_t local_ = 0;
  std::int64_t node_begin_ = 0, node_length_ = 0;  // on its node's line
  std::int64_t rest_begin_ = 0, rest_length_ = 0;  // on the line of what nodes leave
  int source_ = 0;
  std::int32_t next_local_;   // the next instance whose rank is a source to come
  std::int32_t next_node_;    // the first instance of a node to come
  std::int64_t in_node_ = 0;  // open pairs of the node's sources so far
  std::int64_t matched_ = 0;  // pairs that this node's instances take from it
  std::int64_t left_ = 0;     // pairs that nodes left so far
};

}  // namespace lrmoe::plan
