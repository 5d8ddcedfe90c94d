#include "lrmoe/base/size.h"

#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"

namespace lrmoe {
namespace {

TEST(Size, Parses) {
  EXPECT_EQ(parse_size("4096", "x"), 4096);
  EXPECT_EQ(parse_size("512MiB", "x"), 512LL << 20);
  EXPECT_EQ(parse_size("2GB", "x"), 2'000'000'000LL);
  EXPECT_EQ(parse_size(" 1.5 gib ", "x"), 3LL << 29);
  EXPECT_EQ(parse_size("0", "x"), 0);
  EXPECT_EQ(parse_size("7 bytes", "x"), 7);
}

TEST(Size, RefusesWithOneLine) {
  const auto message = [](const std::string& text) {
    return testing::message_of<InputError>([&] { parse_size(text, "memory.budget"); });
  };
  const std::string how = "; a size is a number and a unit, such as 4096, 512MiB or 2GB";
  EXPECT_EQ(message("many"), "memory.budget = 'many' does not begin with a number" + how);
  EXPECT_EQ(message(""), "memory.budget = '' does not begin with a number" + how);
  EXPECT_EQ(message("5 parsecs"), "memory.budget = '5 parsecs' has a unit that is not known" + how);
  EXPECT_EQ(message("-1"), "memory.budget = '-1' is out of range" + how);
  EXPECT_EQ(message("99999999 TiB"), "memory.budget = '99999999 TiB' is out of range" + how);
  EXPECT_EQ(message("inf"), "memory.budget = 'inf' does not begin with a number" + how);
}

TEST(Size, Prints) {
  EXPECT_EQ(print_size(17), "17 B");
  EXPECT_EQ(print_size(512LL << 20), "512 MiB");
  EXPECT_EQ(print_size(3LL << 29), "1.5 GiB");
  EXPECT_EQ(print_size(-2048), "-2 KiB");
  EXPECT_EQ(parse_size(print_size(7LL << 40), "x"), 7LL << 40);
}

}  // namespace
}  // namespace lrmoe
