// Candidate swaps come in one order, however they are sorted, laid aside and cut.
#include "lrmoe/plan/swaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/plan/helpers.h"

namespace lrmoe::plan {
namespace {

constexpr std::uint32_t kSlots = 3;

auto key(const Swap& swap) {
  return std::make_tuple(-swap.gain, swap.a / kSlots, swap.b / kSlots, swap.a, swap.b);
}

std::vector<Swap> random_swaps(test::Random& random, int count) {
  std::vector<Swap> swaps;
  for (int i = 0; i < count; ++i) {  // each b once; many have the same gain and a
    swaps.push_back({static_cast<double>(test::pick(random, 0, 50)),
                     static_cast<std::uint32_t>(test::pick(random, 0, 9)),
                     static_cast<std::uint32_t>(i)});
  }
  std::shuffle(swaps.begin(), swaps.end(), random);
  return swaps;
}

TEST(SwapList, ComesByGainAndKeepsTheBest) {
  test::Random random(1);
  std::vector<Swap> swaps = random_swaps(random, 20000);
  for (const std::size_t most : {SwapList::kMost, std::size_t{5000}}) {
    SwapList list(kSlots, most);
    for (const Swap& swap : swaps) {
      list.push(swap);
    }
    list.finish();
    std::vector<Swap> sorted = swaps;
    std::sort(sorted.begin(), sorted.end(),
              [](const Swap& x, const Swap& y) { return key(x) < key(y); });
    sorted.resize(std::min(most, sorted.size()));
    ASSERT_EQ(list.size(), sorted.size());
    const auto all = [](const Swap&) { return true; };
    const auto none = [](const Swap&) { return false; };
    for (const Swap& expected : sorted) {
      const Swap* next = list.next(all, none);
      ASSERT_NE(next, nullptr);
      ASSERT_EQ(next->b, expected.b);
    }
    EXPECT_EQ(list.next(all, none), nullptr);
  }
}

/// The same as going once through a sorted list, where experts come and go.
TEST(SwapList, LaysAsideAndBringsBack) {
  test::Random random(2);
  std::vector<Swap> swaps = random_swaps(random, 30000);
  std::vector<char> away(10, 0);  // by Swap::a
  const auto fits = [&](const Swap& swap) {
    return away[static_cast<std::size_t>(swap.a)] == 0 && swap.b % 3 != 0;
  };
  const auto gone = [&](const Swap& swap) { return away[static_cast<std::size_t>(swap.a)] != 0; };
  SwapList list(kSlots);
  for (const Swap& swap : swaps) {
    list.push(swap);
  }
  list.finish();
  std::sort(swaps.begin(), swaps.end(),
            [](const Swap& x, const Swap& y) { return key(x) < key(y); });
  int found = 0;
  for (std::size_t at = 0; at < swaps.size(); ++at) {
    if (!fits(swaps[at])) {
      continue;
    }
    const Swap* next = list.next(fits, gone);
    ASSERT_NE(next, nullptr);
    ASSERT_EQ(next->b, swaps[at].b);
    if (++found % 50 == 0) {
      const auto expert = static_cast<std::size_t>(test::pick(random, 0, 9));
      away[expert] = away[expert] == 0 ? 1 : 0;
      if (away[expert] == 0) {
        list.bring_back();
      }
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_EQ(list.next(fits, gone), nullptr);
}

}  // namespace
}  // namespace lrmoe::plan
