// Profiles as TOML: what is read, and that what is wrong is refused in one line.
#include "lrmoe/cost/profile_toml.h"

#include <gtest/gtest.h>

#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/base/output_file.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::cost {
namespace {

const std::string kWhole = R"(source = "a test"
ranks_per_node = 4
[gemm]
peak_tflops = 100
reached = [[64, 0.25], [1024, 1]]
launch_us = 2
[memory]
gb_per_s = 1000
reached = 0.5
[host]
plan_cell_ns = 10
[intra]
gb_per_s = 8
latency_us = 3
[inter]
gb_per_s = 4
reached = 0.25
latency_us = 0
)";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kWhole;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  const std::string message =
      testing::message_of<InputError>([&] { parse_profile(text, "mine.toml"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_TRUE(message.starts_with("mine.toml:")) << message;
  return message;
}

TEST(ProfileToml, EveryKeyIsRead) {
  const Profile p = parse_profile(kWhole, "mine.toml");
  EXPECT_EQ(p.name, "mine.toml");
  EXPECT_EQ(p.source, "a test");
  EXPECT_EQ(p.ranks_per_node, 4);
  EXPECT_DOUBLE_EQ(p.peak_flops, 100e12);
  ASSERT_EQ(p.gemm.size(), 2u);
  EXPECT_DOUBLE_EQ(p.efficiency(64), 0.25);
  EXPECT_DOUBLE_EQ(p.efficiency(5000), 1.0);
  EXPECT_DOUBLE_EQ(p.launch, 2e-6);
  EXPECT_DOUBLE_EQ(p.memory_bandwidth, 500e9);
  EXPECT_DOUBLE_EQ(p.host_cell, 10e-9);
  EXPECT_DOUBLE_EQ(p.intra.bandwidth, 8e9);
  EXPECT_DOUBLE_EQ(p.intra.latency, 3e-6);
  EXPECT_DOUBLE_EQ(p.inter.bandwidth, 1e9);
  EXPECT_EQ(p.inter.latency, 0);
  EXPECT_FALSE(p.measured);
}

TEST(ProfileToml, WhatMayBeLeftOut) {
  const Profile p = parse_profile(
      "source = 'x'\nmeasured = true\n[memory]\ngb_per_s = 1\n"
      "[intra]\ngb_per_s = 2\nlatency_us = 1\n",
      "x");
  EXPECT_TRUE(p.measured);
  EXPECT_EQ(p.ranks_per_node, 0);
  EXPECT_DOUBLE_EQ(p.inter.bandwidth, 2e9);
  EXPECT_DOUBLE_EQ(p.inter.latency, 1e-6);
  EXPECT_EQ(refusal("source = 'x'\n[memory]\ngb_per_s = 1\n"),
            "mine.toml: the section [gemm] is missing");
}

TEST(ProfileToml, RefusalsNameTheLineAndWhatWouldDo) {
  EXPECT_EQ(refusal(replaced("launch_us", "lunch_us")),
            "mine.toml:6: unknown key 'lunch_us' in [gemm]; did you mean 'launch_us'? There are: "
            "peak_tflops, reached, launch_us");
  EXPECT_EQ(refusal(replaced("[inter]", "[internet]")),
            "mine.toml:15: unknown key 'internet'; did you mean 'inter'? There are: source, "
            "ranks_per_node, measured, gemm, memory, host, intra, inter");
  EXPECT_EQ(refusal(replaced("gb_per_s = 1000", "gb_per_s = -1")),
            "mine.toml:8: memory.gb_per_s will not do; it takes a number above 0, at most 1e+09");
  EXPECT_EQ(refusal(replaced("gb_per_s = 8\n", "")),
            "mine.toml:12: intra.gb_per_s is missing; it takes a number above 0, at most 1e+09");
  EXPECT_EQ(refusal(replaced("reached = 0.5", "reached = 1.5")),
            "mine.toml:9: memory.reached will not do; it takes a number above 0, at most 1");
  EXPECT_EQ(refusal(replaced("ranks_per_node = 4", "ranks_per_node = 2.5")),
            "mine.toml:2: ranks_per_node will not do; it takes a whole number from 0 (all ranks "
            "in one node) to 65536");
  EXPECT_EQ(refusal(replaced("[host]", "host = 3\n[hosts]")).substr(0, 14), "mine.toml:10: ");
}

TEST(ProfileToml, WrongTablesOfRowsAreRefused) {
  const std::string good = "[[64, 0.25], [1024, 1]]";
  for (const char* bad :
       {"[]", "3", "[[64]]", "[[64, 0.25], [64, 0.5]]", "[[64, 0]]", "[[64, 1.1]]", "[[0, 0.5]]",
        "[[-1, 0.5]]", "[[nan, 0.5]]", "[[64, 'a']]", "[64, 0.25]", "[[1e300, 0.5]]"}) {
    EXPECT_EQ(refusal(replaced(good, bad)).substr(0, 41),
              "mine.toml:5: gemm.reached will not do; it")
        << bad;
  }
}

TEST(ProfileToml, WrongTypesAndTextAreRefused) {
  for (const char* bad : {"'fast'", "true", "nan", "inf", "[1]", "{}", "1979-05-27"}) {
    EXPECT_EQ(
        refusal(replaced("peak_tflops = 100", std::string("peak_tflops = ") + bad)).substr(0, 41),
        "mine.toml:4: gemm.peak_tflops will not do")
        << bad;
  }
  EXPECT_TRUE(refusal("source = 'x'\n\n= 3").starts_with("mine.toml:3: not TOML: "));
  EXPECT_EQ(refusal(""), "mine.toml: source is missing; it takes the figures' source, in quotes");
  EXPECT_EQ(refusal("source = 3"),
            "mine.toml:1: source will not do; it takes the figures' source, in quotes");
  EXPECT_EQ(refusal("source = 'x'\ngemm = 1").substr(0, 31), "mine.toml:2: gemm is a section:");
}

TEST(ProfileToml, AFileIsAProfile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "fast.toml";
  OutputFile(path).write(kWhole);
  EXPECT_EQ(find_profile(path).name, path);
  EXPECT_DOUBLE_EQ(find_profile(path).peak_flops, 100e12);
  const std::string missing = folder.path() / "none.toml";
  EXPECT_NE(testing::message_of<InputError>([&] { find_profile(missing); }).find("none.toml"),
            std::string::npos);
}

TEST(ProfileToml, TheBuiltInOnesAreTheDataSheets) {
  const Profile h200 = find_profile("h200-ib");
  EXPECT_DOUBLE_EQ(h200.peak_flops, 989.5e12);
  EXPECT_DOUBLE_EQ(h200.memory_bandwidth, 0.8 * 4.8e12);
  EXPECT_DOUBLE_EQ(h200.intra.bandwidth, 0.75 * 450e9);
  EXPECT_DOUBLE_EQ(h200.inter.bandwidth, 0.75 * 50e9);
  EXPECT_DOUBLE_EQ(h200.host_cell, 20e-9);
  EXPECT_DOUBLE_EQ(h200.efficiency(128), 0.25);
  const Profile nvlink = find_profile("h200-nvlink");
  EXPECT_DOUBLE_EQ(nvlink.inter.bandwidth, nvlink.intra.bandwidth);
  EXPECT_EQ(nvlink.ranks_per_node, 0);
  const Profile a100 = find_profile("a100-ib");
  EXPECT_DOUBLE_EQ(a100.peak_flops, 312e12);
  EXPECT_DOUBLE_EQ(a100.memory_bandwidth, 0.8 * 2.039e12);
  EXPECT_DOUBLE_EQ(a100.inter.bandwidth, 0.75 * 25e9);
}

}  // namespace
}  // namespace lrmoe::cost
