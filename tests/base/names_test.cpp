#include "lrmoe/base/names.h"

#include <gtest/gtest.h>

namespace lrmoe {
namespace {

TEST(Names, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("train", "trian"), 1U);  // one swap
  EXPECT_EQ(edit_distance("Train", "tRAIN"), 0U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);
}

TEST(Names, Suggestion) {
  const std::vector<std::string> names{"train", "compare", "plan"};
  EXPECT_EQ(nearest_name("comprae", names), "compare");
  EXPECT_EQ(nearest_name("x", std::vector<std::string>{}), "");
  EXPECT_EQ(suggestion("trian", names), "; did you mean 'train'?");
  EXPECT_EQ(suggestion("zzzzzz", names), "; there are: train, compare, plan");
  EXPECT_EQ(suggestion("zzzzzz", std::vector<std::string>{}), "");
}

TEST(Names, PrintNumber) {
  EXPECT_EQ(print_number(0.25), "0.25");
  EXPECT_EQ(print_number(1e-9), "1e-09");
  EXPECT_EQ(print_number(1e300), "1e+300");
}

TEST(Names, OneLine) {
  EXPECT_EQ(one_line("a\nb\x01"), "a\\nb\\x01");
  EXPECT_EQ(one_line("abcdef", 3), "abc...");
  EXPECT_EQ(quote("x"), "'x'");
}

TEST(Names, SplitTrimJoin) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), std::vector<std::string>{""});
  EXPECT_EQ(trimmed(" \ta b\n"), "a b");
  EXPECT_EQ(trimmed("  "), "");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, " or "), "a or b");
}

}  // namespace
}  // namespace lrmoe
