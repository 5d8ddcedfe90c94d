// Profiles on which one term counts at a time, and steps to price on them.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lrmoe/cost/clock.h"

namespace lrmoe::cost::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Nothing takes any time; the tests switch one thing on.
inline Profile free_profile() {
  Profile p;
  p.name = "test";
  p.peak_flops = kInfinity;
  p.gemm = {{1, 1.0}};
  p.memory_bandwidth = kInfinity;
  p.intra = {kInfinity, 0};
  p.inter = {kInfinity, 0};
  return p;
}
inline Profile flops_only() {
  Profile p = free_profile();
  p.peak_flops = 1e9;
  return p;
}
inline Profile memory_only() {
  Profile p = free_profile();
  p.memory_bandwidth = 1e9;
  return p;
}
inline Profile link_only(int ranks_per_node) {
  Profile p = free_profile();
  p.intra = {1e6, 0};
  p.inter = {1e5, 0};
  p.ranks_per_node = ranks_per_node;
  return p;
}

inline Shape small_shape() {
  return {"own", 8, 4, 4, 2, 1, 2};
}  // dn = 32

/// Every rank sends `rows[b]` rows, each with `per_row` pairs, to rank b, which
/// computes them on one expert; all is kept.
inline std::vector<LayerWork> ranks_that_send(const std::vector<std::int32_t>& rows,
                                              int per_row = 1) {
  const auto size = static_cast<std::int32_t>(rows.size());
  std::vector<LayerWork> ranks(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    LayerWork& w = ranks[r];
    w.forward_rows = w.combine_rows = w.backward_rows = rows;
    for (const std::int32_t n : rows) {
      w.tokens += n;
      w.forward_pairs.push_back(n * per_row);
    }
    w.backward_pairs = w.forward_pairs;
    w.forward_gemm_rows = w.backward_gemm_rows = {size * rows[r] * per_row};
  }
  return ranks;
}

inline StepWork step_of(std::vector<LayerWork> ranks) {
  StepWork step;
  step.layers = {{std::move(ranks)}};
  return step;
}

inline Seconds price(const StepWork& step, const Profile& profile, double scale = 1,
                     const Shape& shape = small_shape()) {
  ClockOptions options;
  options.profile = profile;
  options.shape = shape;
  options.scale = scale;
  return price_step(step, options).total.seconds;
}

}  // namespace lrmoe::cost::test
