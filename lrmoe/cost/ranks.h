// The ranks' own clocks and the collectives at which they meet. A part of the
// clock's implementation (cost/clock.h).
#pragma once

#include <algorithm>
#include <vector>

#include "lrmoe/cost/profile.h"

namespace lrmoe::cost {

class Ranks {
 public:
  Ranks(int size, const Profile& profile, int ranks_per_node)
      : profile_(profile),
        ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : size),
        now_(static_cast<std::size_t>(size), 0.0) {}

  int size() const { return static_cast<int>(now_.size()); }
  void advance(int rank, double seconds) { now_[static_cast<std::size_t>(rank)] += seconds; }
  /// The clock of the rank that is last.
  double latest() const { return *std::max_element(now_.begin(), now_.end()); }

  /// An exchange in which rank a sends bytes(a, b) to rank b. It starts when the
  /// last rank has come; a rank leaves it after the latency of its slowest kind
  /// of link and the larger of what it sends and receives over each kind (the
  /// kinds work side by side, so the slower one counts). What a rank sends to
  /// itself costs nothing here.
  struct Result {
    double seconds = 0;  // from the last arrival to the last leaving
    double sent = 0;     // bytes, of all ranks
  };
  template <class Bytes>
  Result exchange(const Bytes& bytes) {
    Result result;
    if (size() == 1) {
      return result;
    }
    const double start = latest();
    double end = start;
    for (int r = 0; r < size(); ++r) {
      Traffic intra, inter;
      for (int other = 0; other < size(); ++other) {
        if (other == r) {
          continue;
        }
        Traffic& traffic = same_node(r, other) ? intra : inter;
        traffic.sent += bytes(r, other);
        traffic.received += bytes(other, r);
        traffic.used = true;
      }
      const double leaves =
          start + std::max(seconds(intra, profile_.intra), seconds(inter, profile_.inter));
      now_[static_cast<std::size_t>(r)] = leaves;
      end = std::max(end, leaves);
      result.sent += intra.sent + inter.sent;
    }
    result.seconds = end - start;
    return result;
  }

 private:
  struct Traffic {
    double sent = 0;
    double received = 0;
    bool used = false;  // there is such a peer
  };
  bool same_node(int a, int b) const { return a / ranks_per_node_ == b / ranks_per_node_; }
  static double seconds(const Traffic& traffic, const Link& link) {
    return traffic.used ? link.latency + std::max(traffic.sent, traffic.received) / link.bandwidth
                        : 0.0;
  }

  const Profile& profile_;
  int ranks_per_node_;
  std::vector<double> now_;
};

}  // namespace lrmoe::cost
