// What a plan is worth does not depend on the names of ranks and experts: how much of
// that holds exactly, and how far the rest can be apart, on random cases that shrink.
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

#include "lrmoe/plan/evenest.h"
#include "lrmoe/plan/fixed_point.h"
#include "lrmoe/plan/keep.h"
#include "lrmoe/plan/memory.h"
#include "lrmoe/plan/quota.h"
#include "tests/plan/random_case.h"

namespace lrmoe::plan {
namespace {

using namespace test;

std::vector<int> random_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(number(0, static_cast<int>(i) - 1))]);
  }
  return order;
}

/// The case and its placement with other names for ranks and experts.
RouteInput renamed(const RouteInput& input, const std::vector<int>& ranks,
                   const std::vector<int>& experts) {
  RouteInput out = input;
  for (int r = 0; r < input.cluster.ranks; ++r) {
    const int to = ranks[static_cast<std::size_t>(r)];
    for (int e = 0; e < input.cluster.experts; ++e) {
      out.demand.at(to, experts[static_cast<std::size_t>(e)]) = input.demand.at(r, e);
    }
    for (int s = 0; s < input.cluster.slots; ++s) {
      const std::int32_t e = input.placement.at(r, s);
      out.placement.at(to, s) = e < 0 ? e : experts[static_cast<std::size_t>(e)];
    }
  }
  return out;
}

/// A plan's input and the same with other names, with all that names must not change.
struct Twins {
  Case c;
  ScoreCurves curves{1}, other_curves{1};
  RouteInput input, other;
  std::vector<int> ranks, experts;
  std::unique_ptr<const Strategy> strategy;
};

std::unique_ptr<Twins> random_twins() {
  auto twins = std::make_unique<Twins>();
  Case& c = twins->c;
  c = random_case({"lrmoe"});
  c.shortlist = false;
  c.cluster.ranks_per_node = 0;  // nodes are consecutive ranks: their names do matter
  twins->ranks = random_order(c.cluster.ranks);
  twins->experts = random_order(c.cluster.experts);
  Case same = c;
  for (std::size_t i = 0; i < c.scores.size(); ++i) {
    same.scores[4 * static_cast<std::size_t>(twins->experts[i / 4]) + i % 4] = c.scores[i];
  }
  twins->curves = curves_of(c);
  twins->other_curves = curves_of(same);
  twins->strategy = make_strategy(c.options);
  twins->input = input_of(c, *twins->strategy, twins->curves);
  twins->other = renamed(twins->input, twins->ranks, twins->experts);
  twins->other.curves = &twins->other_curves;
  return twins;
}

/// What the prices of a case come to where no rank is ever full.
struct WithoutRanks {
  QuotaSettings settings;
  double variance = 0.0;
  double largest_share = 0.0;  // of any expert's pairs that is kept
  double mean = 0.0;           // pairs that a rank keeps

  WithoutRanks(const Case& c, const ScoreCurves& curves) {
    const auto pairs = pairs_per_expert(c.demand);
    settings = quota_settings(c.options.lrmoe, &curves, pairs);
    const auto quota = quota_without_ranks(&curves, pairs, settings);
    variance = predicted_variance(&curves, pairs, quota, 1);
    for (std::size_t e = 0; e < pairs.size(); ++e) {
      if (pairs[e] > 0) {
        largest_share = std::max(largest_share, from_fixed(quota[e] / pairs[e] + 1));
      }
    }
    mean = from_fixed(total_pairs(c.demand) * settings.ratio / c.cluster.ranks);
  }
};

// What a plan is worth does not depend on names, the placement being renamed too:
//  - the largest forward load is an optimum: equal.
//  - the added variance of modes recompute and quota is an optimum over all splits: equal up to the
//    rounding of the price (4 units of 2^-24 pairs each way).
//  - the backward load of modes recompute and quota is an optimum over integer counts. These are
//  the
//    experts' real quotas, which the draw rounds up or down by where they lie on the
//    line, and the names say where. What a set of experts keeps that fills a set of
//    ranks is so less than one pair an expert apart, and at most S of them stand on a
//    rank: the largest load is at most S apart.
TEST(PropertyNames, NamesDoNotMatterToWhatIsOptimal) {
  double variance_apart = 0.0;
  std::int64_t pairs_apart = 0;
  holds([&] {
    const auto twins = random_twins();
    const Case& c = twins->c;
    const Plan a = twins->strategy->route(twins->input);
    const Plan b = twins->strategy->route(twins->other);
    RC_ASSERT(largest(a.forward, c.cluster.ranks) == largest(b.forward, c.cluster.ranks));
    RC_ASSERT(a.keep_all == b.keep_all);
    if (c.options.lrmoe.activations != Activations::keep && !a.keep_all) {
      const std::int64_t apart =
          std::abs(largest(a.backward, c.cluster.ranks) - largest(b.backward, c.cluster.ranks));
      RC_ASSERT(apart <= c.cluster.slots);
      const double off = std::abs(a.added_variance - b.added_variance) / (1.0 + a.added_variance);
      pairs_apart = std::max(pairs_apart, apart);
      variance_apart = std::max(variance_apart, off);
      RC_ASSERT(off <= 1e-5);
    }
  });
  std::cout << "other names, recompute: largest backward load " << pairs_apart
            << " pairs apart, added variance " << variance_apart << " of 1 + itself\n";
}

// Mode keep is tied to the forward split. Of several even ones another may be found, and
// what a rank may keep is then bought of other experts. What holds whatever was found,
// with L the largest forward load (equal), q the mean that a rank keeps and V the added
// variance of one price without ranks:
//  - a rank keeps at most max((1 + slack) q, ratio L), its line rounded up by less than one
//    pair: with ratio L on every rank each could keep its share. The fullest keeps q at least.
//  - no plan adds less than V. Ranks that one price would fill with B > C pairs keep C, by
//    probabilities that are at worst C / B of that price's (of what is above the floors),
//    and s^2 / pi grows as much: 1 + added <= (1 + V) max B / C, where B is at most L times
//    the largest share of an expert.
TEST(PropertyNames, NamesChangeNoMoreThanTheSlackAllowsWhereActivationsAreKept) {
  double pairs_apart = 0.0;
  double variance_apart = 0.0;
  int cases = 0;
  holds([&] {
    const auto twins = random_twins();
    const Case& c = twins->c;
    const WithoutRanks free(c, twins->curves);
    const double floor = from_fixed(std::min(free.settings.floor, free.settings.ratio));
    double kept[2] = {0.0, 0.0};
    double added[2] = {0.0, 0.0};
    for (const bool second : {false, true}) {
      const Plan plan = twins->strategy->route(second ? twins->other : twins->input);
      if (plan.keep_all || c.options.lrmoe.activations != Activations::keep) {
        return;
      }
      const auto most = static_cast<double>(largest(plan.forward, c.cluster.ranks));
      const double asked = free.mean * (1.0 + from_fixed(free.settings.slack));
      kept[second] = static_cast<double>(largest(plan.backward, c.cluster.ranks));
      RC_ASSERT(kept[second] < std::max(asked, from_fixed(free.settings.ratio) * most) + 1.001);
      RC_ASSERT(kept[second] > free.mean - 1.001);
      added[second] = plan.added_variance;
      RC_ASSERT(1.0 + added[second] >= (1.0 + free.variance) * (1.0 - 1e-4));
      const double floors = floor * most;
      if (asked > floors) {
        const double worse = std::max(1.0, (most * free.largest_share - floors) / (asked - floors));
        RC_ASSERT(1.0 + added[second] <= (1.0 + free.variance) * worse * (1.0 + 1e-4));
      }
    }
    ++cases;
    if (total_pairs(c.demand) > std::int64_t{20} * c.cluster.ranks) {
      pairs_apart = std::max(pairs_apart, std::abs(kept[0] - kept[1]) / (free.mean + 1.0));
      variance_apart =
          std::max(variance_apart, std::abs(added[0] - added[1]) / (1.0 + free.variance));
    }
  });
  std::cout << "other names, keep (" << cases << " cases): largest kept load " << pairs_apart
            << " of the mean apart, added variance " << variance_apart << " of 1 + the least\n";
  EXPECT_GT(cases, 500);
}

// Weights and gradients go with the placement: equal on every rank. The rest follows the
// pairs of each rank, of which the fullest has equally many, and the rows that these are,
// which depend on how sources were cut: measured, not derived.
TEST(PropertyNames, NamesHardlyMatterToMemory) {
  double apart = 0.0;
  holds([&] {
    const auto twins = random_twins();
    const Case& c = twins->c;
    MemoryModel model{.hidden = 64, .width = 32};
    model.activations = *c.options.lrmoe.activations;
    const auto a = memory_terms(twins->strategy->route(twins->input), model);
    const auto b = memory_terms(twins->strategy->route(twins->other), model);
    for (std::size_t r = 0; r < a.size(); ++r) {
      const MemoryTerms& there = b[static_cast<std::size_t>(twins->ranks[r])];
      RC_ASSERT(a[r].weights == there.weights);
      RC_ASSERT(a[r].gradients == there.gradients);
    }
    if (total_pairs(c.demand) > std::int64_t{20} * c.cluster.ranks) {
      const double off = std::abs(
          static_cast<double>(fullest(b).total()) / static_cast<double>(fullest(a).total()) - 1.0);
      apart = std::max(apart, off);
      RC_ASSERT(off <= 0.25);
    }
  });
  std::cout << "other names: fullest rank's memory at most " << 100 * apart << "% apart\n";
}

// A placement follows the experts' sums: whose pairs they are does not matter at all, and
// experts with other numbers stand as they stood.
TEST(PropertyNames, NamesDoNotMatterToThePlacement) {
  holds([] {
    const auto twins = random_twins();
    const Case& c = twins->c;
    const Placement empty = twins->strategy->initial(c.cluster);
    std::vector<int> as_they_are(twins->experts.size());
    std::iota(as_they_are.begin(), as_they_are.end(), 0);
    const RouteInput sources = renamed(twins->input, twins->ranks, as_they_are);
    RC_ASSERT(twins->strategy->place(c.cluster, sources.demand, empty, &twins->curves) ==
              twins->input.placement);
    const Placement other =
        twins->strategy->place(c.cluster, twins->other.demand, empty, &twins->other_curves);
    const auto forward = [&](const Counts& demand, const Placement& placement) {
      return fullest_share(placement, pairs_per_expert(demand), {});
    };
    RC_ASSERT(forward(twins->other.demand, other) == forward(c.demand, twins->input.placement));
  });
}

}  // namespace
}  // namespace lrmoe::plan
