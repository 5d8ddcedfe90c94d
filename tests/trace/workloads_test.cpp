#include "lrmoe/trace/workloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/trace/demand.h"
#include "lrmoe/trace/portable_math.h"
#include "lrmoe/trace/token_imbalance.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::trace {
namespace {

using Counts = std::vector<std::int64_t>;

WorkloadOptions benchmark(const std::string& name) {
  return {.name = name, .experts = 8, .top_k = 2, .tokens = 128, .seed = 1234};
}

Counts counts_of(const WorkloadOptions& options, int step = 0, int layer = 0) {
  return pairs_per_expert(Workload(options).make(step, layer), options.experts);
}

double max_mean(const Counts& counts) {
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) *
         static_cast<double>(counts.size()) / static_cast<double>(sum);
}

TEST(TokenImbalance, Sha256) {
  // FIPS 180-4's example: ba7816bf 8f01cfea ...
  EXPECT_EQ(sha256_seed("abc"), 0xba7816bfU);
}

// The published counts of step 0.
TEST(TokenImbalance, KnownCounts) {
  const std::map<std::string, Counts> known{
      {"W0_balanced", {32, 32, 32, 32, 32, 32, 32, 32}},
      {"W1_hot_expert_set", {103, 106, 8, 8, 9, 7, 5, 10}},
      {"W2_hot_rank", {102, 103, 11, 7, 8, 9, 8, 8}},
      {"W3_spread_hot_experts", {47, 8, 61, 11, 51, 9, 61, 8}},
      {"W4_source_ragged", {28, 25, 29, 34, 33, 32, 41, 34}},
      {"W5_zero_expert_rank", {0, 0, 0, 0, 66, 55, 66, 69}},
      {"W6_rotating_hotspot", {106, 104, 6, 6, 12, 9, 8, 5}},
      {"W7_burst", {27, 33, 39, 28, 35, 27, 33, 34}}};
  for (const auto& [name, counts] : known) {
    EXPECT_EQ(counts_of(benchmark(name)), counts) << name;
    EXPECT_EQ(counts_of(benchmark(name.substr(0, 2))), counts) << name;
  }
}

// 96 of the 128 tokens take both hot experts, the other 32 take any two.
TEST(TokenImbalance, HotspotsMoveAndBurst) {
  for (const auto& [step, first] : {std::pair(2, 0), {3, 2}, {5, 2}, {6, 4}, {9, 6}, {12, 0}}) {
    const Counts counts = counts_of(benchmark("W6"), step);
    const auto at = static_cast<std::size_t>(first);
    EXPECT_GE(counts[at], 96) << step;
    EXPECT_GE(counts[at + 1], 96) << step;
    for (std::size_t e = 0; e < 8; ++e) {
      EXPECT_TRUE(e == at || e == at + 1 || counts[e] <= 32) << step;
    }
  }
  // In a burst, every other token takes experts 0 and 1.
  const Routing burst = Workload(benchmark("W7")).make(3, 0);
  for (std::size_t t = 0; t < 128; t += 2) {
    EXPECT_EQ(burst.ids[2 * t], 0);
    EXPECT_EQ(burst.ids[2 * t + 1], 1);
  }
  for (const int calm : {1, 2, 4}) {
    EXPECT_LT(counts_of(benchmark("W7"), calm)[0], 64) << calm;
  }
  EXPECT_EQ(counts_of(benchmark("W0"), 5), Counts(8, 32));
  EXPECT_NE(counts_of(benchmark("W4"), 1), counts_of(benchmark("W4"), 0));
  EXPECT_NE(counts_of(benchmark("W4"), 0, 1), counts_of(benchmark("W4"), 0));
}

TEST(TokenImbalance, SourcesAreEqualButForW4) {
  WorkloadOptions options = benchmark("W4");
  options.ranks = 4;
  Counts tokens(4, 0);
  for (const std::int32_t r : Workload(options).make(0, 0).sources) {
    ++tokens[static_cast<std::size_t>(r)];
  }
  // 128 tokens in proportion to 1, 2, 3, 4, cut where the running sums round down.
  EXPECT_EQ(tokens, (Counts{12, 26, 38, 52}));
  options.name = "W1";
  EXPECT_EQ(Workload(options).make(0, 0).sources[31], 0);
  EXPECT_EQ(Workload(options).make(0, 0).sources[32], 1);
}

TEST(Workloads, RefusesWhatCannotBe) {
  const auto refusal = [](WorkloadOptions options) {
    return testing::message_of<InputError>([&] { Workload workload(options); });
  };
  WorkloadOptions o{.name = "zipff"};
  EXPECT_EQ(refusal(o),
            "unknown workload 'zipff'; there are: W0_balanced, W1_hot_expert_set, W2_hot_rank, "
            "W3_spread_hot_experts, W4_source_ragged, W5_zero_expert_rank, W6_rotating_hotspot, "
            "W7_burst, zipf, 80:4, lognormal, drift, and P:N for any other percentage and number "
            "of experts");
  for (const char* name : {"80:", ":4", "80:x", "80:4:4", "W8", ""}) {
    o.name = name;
    EXPECT_EQ(refusal(o).find("unknown workload '"), 0U) << name;
  }
  o.name = "101:4";
  EXPECT_EQ(refusal(o), "the percentage of hot tokens = 101 will not do; it takes 0 to 100");
  o.name = "80:65";
  EXPECT_EQ(refusal(o), "the number of hot experts = 65 will not do; it takes 1 to 64");
  o.name = "lognormal";
  o.max_mean = 8.5;
  EXPECT_EQ(refusal(o), "max-mean = 8.5 will not do; it takes 1 to 8");
  o.name = "W5";
  o.experts = 8;
  o.top_k = 5;
  EXPECT_EQ(refusal(o),
            "workload W5_zero_expert_rank: 4 of the 8 experts are chosen from, fewer than top-k = "
            "5; it takes at least 10 experts");
  o.top_k = 9;
  EXPECT_EQ(refusal(o), "top-k = 9 will not do; it takes 1 to 8");
}

// Every workload keeps the rules of a trace, and its gates are a softmax.
TEST(Workloads, EveryOneIsATrace) {
  for (const std::string& name : workload_names()) {
    const WorkloadOptions options{
        .name = name, .experts = 32, .top_k = 4, .tokens = 500, .steps = 2, .layers = 2};
    const Workload workload(options);
    std::vector<Routing> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back(workload.make(i / 2, i % 2));
    }
    const Trace trace(workload.info(), all);  // throws where a rule is broken
    const Routing routing = trace.read(0, 0);
    for (std::size_t t = 0; t < routing.gates.size(); t += 4) {
      float sum = 0;
      for (std::size_t j = t; j < t + 4; ++j) {
        sum += routing.gates[j];
        EXPECT_GT(routing.gates[j], 0) << name;
        EXPECT_TRUE(j == t || name[0] == 'W' || routing.gates[j] <= routing.gates[j - 1]) << name;
      }
      EXPECT_NEAR(sum, 1, 1e-6) << name;
    }
  }
}

TEST(Workloads, Zipf) {
  WorkloadOptions options{.name = "zipf", .experts = 16, .top_k = 1, .tokens = 200000};
  Counts counts = counts_of(options);
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double harmonic = 0;
  for (int i = 1; i <= 16; ++i) {
    harmonic += 1.0 / i;
  }
  for (std::size_t i = 0; i < 16; ++i) {  // within five standard deviations
    const double wanted = 200000 / harmonic / static_cast<double>(i + 1);
    EXPECT_NEAR(static_cast<double>(counts[i]), wanted, 5 * std::sqrt(wanted)) << i;
  }
  options.exponent = 0;
  EXPECT_LT(max_mean(counts_of(options)), 1.05);
}

TEST(Workloads, MostOfTheTokensToAFewExperts) {
  WorkloadOptions options{.name = "80:4", .experts = 64, .top_k = 2, .tokens = 50000};
  Counts counts = counts_of(options);
  std::sort(counts.begin(), counts.end(), std::greater<>());
  const auto hot = std::accumulate(counts.begin(), counts.begin() + 4, std::int64_t{0});
  EXPECT_NEAR(static_cast<double>(hot) / 100000, 0.8, 0.01);
  EXPECT_NEAR(static_cast<double>(counts[0]), 20000, 600);
  // k > N: 80% of the tokens take all four, the others none.
  options.top_k = 8;
  counts = counts_of(options);
  std::sort(counts.begin(), counts.end(), std::greater<>());
  EXPECT_EQ(counts[0], counts[3]);
  EXPECT_NEAR(static_cast<double>(counts[0]) / 50000, 0.8, 0.01);
  EXPECT_LT(counts[4], 50000 / 5);
}

// The greatest count over the mean: within 1% and five standard deviations of what
// was asked.
TEST(Workloads, LognormalMeetsTheWantedImbalance) {
  for (const double wanted : {1.2, 2.0, 4.0, 7.5}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const WorkloadOptions options{.name = "lognormal",
                                    .experts = 64,
                                    .top_k = 8,
                                    .tokens = 40000,
                                    .seed = seed,
                                    .max_mean = wanted};
      const double mean = 40000.0 * 8 / 64;
      EXPECT_NEAR(max_mean(counts_of(options)), wanted,
                  wanted * (0.01 + 5 / std::sqrt(wanted * mean)))
          << wanted << " " << seed;
    }
  }
}

TEST(Workloads, DriftMovesPopularityAndKeepsTheImbalance) {
  const WorkloadOptions options{.name = "drift",
                                .experts = 64,
                                .top_k = 4,
                                .tokens = 40000,
                                .steps = 40,
                                .max_mean = 3.0,
                                .drift = 0.1};
  const Counts first = counts_of(options);
  double last = 0;
  for (const int step : {1, 5, 39}) {
    const Counts now = counts_of(options, step);
    EXPECT_NEAR(max_mean(now), 3.0, 0.25) << step;
    double moved = 0;  // the share of the pairs that went to other experts
    for (std::size_t e = 0; e < 64; ++e) {
      moved += std::abs(static_cast<double>(now[e] - first[e])) / 2 / 160000;
    }
    EXPECT_GT(moved, last) << step;
    last = moved;
  }
  EXPECT_GT(last, 0.15);
  WorkloadOptions still = options;
  still.drift = 0;
  const Counts a = counts_of(still), b = counts_of(still, 39);
  for (std::size_t e = 0; e < 64; ++e) {
    EXPECT_NEAR(static_cast<double>(a[e]), static_cast<double>(b[e]), 6 * std::sqrt(a[e]) + 6);
  }
}

// The half of the pairs with the largest gates holds about 70% of all gates, as in
// recorded traces.
TEST(Workloads, GatesAreAsUnevenAsRealOnes) {
  Routing routing = Workload({.name = "zipf", .top_k = 6}).make(0, 0);
  std::sort(routing.gates.begin(), routing.gates.end(), std::greater<>());
  const auto half = routing.gates.begin() + static_cast<std::ptrdiff_t>(routing.gates.size() / 2);
  EXPECT_NEAR(std::accumulate(routing.gates.begin(), half, 0.0) / 8192, 0.70, 0.02);
}

// The same bits on every compiler and machine.
TEST(Workloads, KnownBits) {
  const auto digest = [](const std::string& name) {
    const Routing routing =
        Workload({.name = name, .experts = 48, .top_k = 3, .tokens = 1000, .seed = 7}).make(2, 1);
    std::uint64_t h = 0;
    for (std::size_t i = 0; i < routing.ids.size(); ++i) {
      h = hash({h, static_cast<std::uint64_t>(routing.ids[i]),
                std::bit_cast<std::uint32_t>(routing.gates[i])});
    }
    return h;
  };
  EXPECT_EQ(digest("W3"), 10978228271993872875U);
  EXPECT_EQ(digest("zipf"), 12415915464024914995U);
  EXPECT_EQ(digest("80:4"), 2688717343654129414U);
  EXPECT_EQ(digest("lognormal"), 14522051880367369045U);
  EXPECT_EQ(digest("drift"), 3200239703084503227U);
}

TEST(Workloads, FileHoldsWhatWasMade) {
  const testing::TemporaryFolder folder;
  const WorkloadOptions options{.name = "lognormal",
                                .experts = 300,
                                .top_k = 8,
                                .tokens = 64,
                                .steps = 2,
                                .layers = 3,
                                .ranks = 4};
  make_trace(options, folder / "x");
  const Trace trace = Trace::open(folder / "x");
  const Workload workload(options);
  EXPECT_EQ(trace.info(), workload.info());
  for (int s = 0; s < 2; ++s) {
    for (int l = 0; l < 3; ++l) {
      EXPECT_EQ(trace.read(s, l), workload.make(s, l));
    }
  }
}

TEST(PortableMath, AgreesWithTheLibrary) {
  for (int i = -2000; i <= 2000; ++i) {
    const double x = i * 0.3137;
    EXPECT_NEAR(portable_exp2(x) / std::exp2(x), 1, 1e-14) << x;
  }
  for (int i = 1; i <= 2000; ++i) {
    const double x = std::exp((i - 1000) * 0.1);
    EXPECT_NEAR(portable_log2(x), std::log2(x), 1e-14 * std::max(1.0, std::abs(std::log2(x)))) << x;
    EXPECT_NEAR(portable_pow(i, -1.1) / std::pow(i, -1.1), 1, 1e-13) << i;
  }
  EXPECT_EQ(portable_exp2(0), 1);
  EXPECT_EQ(portable_log2(1), 0);
}

}  // namespace
}  // namespace lrmoe::trace
