#include "lrmoe/plan/assign.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

/// One expert's sources and instances, with what is still open on both sides.
class Matching {
 public:
  Matching(int expert, const Counts& pairs, const Loads& loads, Split& out)
      : expert_(expert), out_(out) {
    for (int r = 0; r < pairs.rows; ++r) {
      supply_.push_back(pairs.at(r, expert));
      demand_.push_back(loads.at(expert, r));
    }
  }

  void send(int source, int rank) {
    const auto s = static_cast<std::size_t>(source);
    const auto d = static_cast<std::size_t>(rank);
    const std::int64_t amount = std::min(supply_[s], demand_[d]);
    if (amount > 0) {
      supply_[s] -= amount;
      demand_[d] -= amount;
      out_.push_back({source, expert_, rank, static_cast<std::int32_t>(amount)});
    }
  }

  /// Matches sources and ranks of [begin, end), in order.
  void match(int begin, int end) {
    int rank = begin;
    for (int source = begin; source < end; ++source) {
      while (rank < end && supply_[static_cast<std::size_t>(source)] > 0) {
        send(source, rank);
        if (demand_[static_cast<std::size_t>(rank)] == 0) {
          ++rank;
        }
      }
    }
  }

  bool done() const {
    const auto zero = [](std::int64_t v) { return v == 0; };
    return std::all_of(supply_.begin(), supply_.end(), zero) &&
           std::all_of(demand_.begin(), demand_.end(), zero);
  }

 private:
  std::int32_t expert_;
  std::vector<std::int64_t> supply_;
  std::vector<std::int64_t> demand_;
  Split& out_;
};

}  // namespace

Split assign_sources(const Cluster& cluster, const Counts& pairs, const Loads& loads) {
  const int ranks = cluster.ranks;
  Split split;
  for (int e = 0; e < cluster.experts; ++e) {
    Matching matching(e, pairs, loads, split);
    for (int r = 0; r < ranks; ++r) {
      matching.send(r, r);
    }
    if (cluster.ranks_per_node > 0) {
      for (int begin = 0; begin < ranks; begin += cluster.ranks_per_node) {
        matching.match(begin, std::min(begin + cluster.ranks_per_node, ranks));
      }
    }
    matching.match(0, ranks);
    LRMOE_ASSERT(matching.done(), "[assign_sources] pairs and loads of expert " +
                                      std::to_string(e) + " differ in sum");
  }
  // Each (source, expert, rank) was met once: a later pass finds one side empty.
  std::sort(split.begin(), split.end(), [](const Route& a, const Route& b) {
    return std::tie(a.source, a.expert, a.rank) < std::tie(b.source, b.expert, b.rank);
  });
  return split;
}

}  // namespace lrmoe::plan
