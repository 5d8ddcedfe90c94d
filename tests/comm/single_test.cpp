// The engine of one rank.
#include "lrmoe/comm/single.h"

#include <gtest/gtest.h>

#include <array>

namespace lrmoe::comm {
namespace {

using Values = std::array<std::int32_t, 3>;
const Values kValues{4, -7, 9};

TEST(Single, CopiesAndLeavesReductionsAsTheyAre) {
  const auto world = make_single();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  world->barrier();
  const std::span<const std::int32_t> in(kValues);
  Values out{};
  world->all_gather(view(in), view(std::span<std::int32_t>(out)));
  EXPECT_EQ(out, kValues);
  out = {};
  world->reduce_scatter(view(in), view(std::span<std::int32_t>(out)), Reduce::sum);
  EXPECT_EQ(out, kValues);
  world->all_reduce(view(std::span<std::int32_t>(out)), Reduce::max);
  EXPECT_EQ(out, kValues);
  out = {};
  const std::array<std::int64_t, 1> all{3};
  world->all_to_all_v(view(in), all, view(std::span<std::int32_t>(out)), all);
  EXPECT_EQ(out, kValues);
}

TEST(Single, SendsToItselfInOrder) {
  const auto world = make_single();
  Values values = kValues, got{};
  const auto part = [](Values& of, int i) {
    return Buffer{&of[static_cast<std::size_t>(i)], 1, DType::i32};
  };
  const std::array transfers{Transfer{Transfer::Kind::receive, 0, part(got, 0)},
                             Transfer{Transfer::Kind::send, 0, part(values, 1)},
                             Transfer{Transfer::Kind::send, 0, part(values, 2)},
                             Transfer{Transfer::Kind::receive, 0, part(got, 1)}};
  world->exchange(transfers);
  EXPECT_EQ(got, (Values{-7, 9, 0}));
}

TEST(Single, RefusesCountsThatDoNotAgree) {
  const auto world = make_single();
  Values out{};
  const std::array<std::int64_t, 1> two{2}, three{3};
  EXPECT_THROW(world->all_to_all_v(view(std::span<const std::int32_t>(kValues)), three,
                                   view(std::span<std::int32_t>(out)), two),
               InternalError);
  EXPECT_THROW(world->all_gather(view(std::span<const std::int32_t>(kValues).first(2)),
                                 view(std::span<std::int32_t>(out))),
               InternalError);
}

}  // namespace
}  // namespace lrmoe::comm
