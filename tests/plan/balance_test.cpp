// Balance on the routing of a real model: the figures that placement is held to.
#include <gtest/gtest.h>

#include <cstdio>

#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/outline.h"
#include "lrmoe/plan/quota.h"
#include "lrmoe/plan/robust.h"
#include "lrmoe/plan/split.h"
#include "tests/plan/shared_traces.h"

namespace lrmoe::plan {
namespace {

constexpr int kExperts = 64;

double over_mean(const std::vector<std::int64_t>& loads) {
  std::int64_t all = 0;
  std::int64_t most = 0;
  for (const std::int64_t load : loads) {
    all += load;
    most = std::max(most, load);
  }
  return static_cast<double>(most) * static_cast<double>(loads.size()) / static_cast<double>(all);
}

std::vector<std::int64_t> column_sums(const Loads& loads) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(loads.cols), 0);
  for (int e = 0; e < loads.rows; ++e) {
    for (int r = 0; r < loads.cols; ++r) {
      sums[static_cast<std::size_t>(r)] += loads.at(e, r);
    }
  }
  return sums;
}

/// Largest over mean rank load of each phase.
struct Balance {
  double forward = 0, backward = 0;
  double added = 0;  // variance of mode keep with the usual slack of 1%, over that without ranks

  void add(const Balance& other, double count) {
    forward += other.forward / count;
    backward += other.backward / count;
    added += other.added / count;
  }
};

/// Mode recompute: the quotas, in fixed point, are split by themselves.
Balance of_recompute(const Placement& placement, const test::TracePart& part,
                     const ScoreCurves& curves, const QuotaSettings& settings) {
  const Instances instances = instances_of(placement, kExperts);
  const auto quota =
      quota_of_experts(&curves, part.pairs, instances, placement.rows, settings).quota;
  return {
      over_mean(column_sums(min_max_split(part.pairs, instances, placement.rows).loads)),
      over_mean(column_sums(min_max_split(quota, instances, placement.rows).loads)),
  };
}

/// Mode keep: the forward split says where quotas are, as a strategy finds it.
Balance of_keep(const Placement& placement, const test::TracePart& part, const ScoreCurves& curves,
                const QuotaSettings& settings, double ratio) {
  const int ranks = placement.rows;
  Cluster cluster{ranks, kExperts, placement.cols, 6, 0};
  Counts demand(ranks, kExperts);
  for (int e = 0; e < kExperts; ++e) {  // how sources share an expert's pairs does not matter here
    for (int r = 0; r < ranks; ++r) {
      demand.at(r, e) =
          static_cast<std::int32_t>(part.pairs[static_cast<std::size_t>(e)] * (r + 1) / ranks -
                                    part.pairs[static_cast<std::size_t>(e)] * r / ranks);
    }
  }
  LrmoeOptions options;
  options.activations = Activations::keep;
  options.ratio = ratio;
  RouteScratch scratch;
  RouteInput input{cluster, demand, placement};
  input.curves = &curves;
  outline_forward(input, -1, scratch);
  even_out_kept(input, options, scratch);
  const InstanceIndex& index = scratch.outline.index;
  Loads loads(kExperts, ranks);
  for (std::size_t i = 0; i < scratch.outline.forward.size(); ++i) {
    loads.at(index.expert[i], index.rank[i]) = scratch.outline.forward[i];
  }
  const double best = predicted_variance(&curves, part.pairs,
                                         quota_without_ranks(&curves, part.pairs, settings), 1);
  QuotaSettings usual = settings;
  usual.slack = to_fixed(0.01);
  return {over_mean(column_sums(loads)),
          over_mean(column_sums(quota_at_ranks(&curves, loads, settings).quota)),
          predicted_variance(&curves, loads.values,
                             quota_at_ranks(&curves, loads, usual).quota.values, ranks) /
              best};
}

double later_limit(bool drifts, int extra) {
  if (drifts) {
    return extra > 1 ? 1.015 : 1.03;
  }
  return extra > 1 ? 1.003 : 1.005;
}

class SharedTrace : public testing::TestWithParam<const char*> {};

TEST_P(SharedTrace, BothPhasesAreEven) {
  const bool drifts = std::string(GetParam()) == "summary";
  const auto layers = test::shared_trace(GetParam());
  if (layers.empty()) {
    GTEST_SKIP() << "no shared trace " << GetParam();
  }
  const auto count = static_cast<double>(layers.size());
  for (const int ranks : {8, 16, 32}) {
    for (const int extra : {1, 2}) {
      for (const double ratio : {0.25, 0.5}) {
        const Cluster cluster{ranks, kExperts, kExperts / ranks + extra, 6, 0};
        // A tight slack, so that it is the placement that evens out the backward pass.
        const QuotaSettings settings{to_fixed(ratio), to_fixed(0.02), to_fixed(0.0005)};
        Balance recompute, recompute_later, keep, keep_later;
        for (const test::TraceLayer& layer : layers) {
          const auto place = [&](const test::TracePart& plan, bool tied) {
            RobustSettings robust;
            robust.tied = tied;
            return place_robust(cluster, plan.pairs,
                                quota_without_ranks(&plan.curves, plan.pairs, settings), robust);
          };
          const auto& [all, first, second] = layer;
          recompute.add(of_recompute(place(all, false), all, all.curves, settings), count);
          recompute_later.add(of_recompute(place(first, false), second, first.curves, settings),
                              count);
          keep.add(of_keep(place(all, true), all, all.curves, settings, ratio), count);
          keep_later.add(of_keep(place(first, true), second, first.curves, settings, ratio), count);
        }
        std::printf(
            "%-8s R %2d S %d rho %.2f | recompute: %.4f %.4f, next %.4f %.4f | keep: %.4f %.4f, "
            "variance x %.4f, next %.4f %.4f, x %.4f\n",
            GetParam(), ranks, cluster.slots, ratio, recompute.forward, recompute.backward,
            recompute_later.forward, recompute_later.backward, keep.forward, keep.backward,
            keep.added, keep_later.forward, keep_later.backward, keep_later.added);
        EXPECT_LE(recompute.forward, 1.001);
        EXPECT_LE(recompute.backward, 1.001);
        EXPECT_LE(keep.forward, 1.001);
        EXPECT_LE(keep.backward, 1.001);
        EXPECT_LE(keep.added, 1.01);
        EXPECT_LE(recompute_later.forward, later_limit(drifts, extra));
        EXPECT_LE(keep_later.forward, later_limit(drifts, extra));
        EXPECT_LE(recompute_later.backward, later_limit(drifts, extra));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedTrace, testing::Values("intent", "summary"),
                         [](const auto& trace) { return std::string(trace.param); });

}  // namespace
}  // namespace lrmoe::plan
