// Profiles, shapes, and the packing of work.
#include "lrmoe/cost/profile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/cost/kernels.h"
#include "lrmoe/cost/shape.h"
#include "lrmoe/cost/work.h"

namespace lrmoe::cost {
namespace {

TEST(Profile, KnownByName) {
  for (const char* name : {"h200-nvlink", "h200-ib", "a100-ib", "this-machine"}) {
    EXPECT_EQ(find_profile(name).name, name);
    EXPECT_FALSE(find_profile(name).source.empty());
    EXPECT_GT(find_profile(name).memory_bandwidth, 0);
    EXPECT_GT(find_profile(name).inter.bandwidth, 0);
  }
  EXPECT_TRUE(find_profile("this-machine").measured);
  EXPECT_FALSE(find_profile("h200-ib").measured);
  EXPECT_EQ(find_profile("h200-ib").ranks_per_node, 8);
}

TEST(Profile, UnknownNamesListThoseThatExist) {
  try {
    find_profile("h100");
    FAIL();
  } catch (const InputError& error) {
    for (const std::string& name : profile_names()) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

TEST(Profile, EfficiencyIsInterpolated) {
  Profile p;
  p.gemm = {{100, 0.4}, {300, 0.8}};
  EXPECT_DOUBLE_EQ(p.efficiency(50), 0.2);
  EXPECT_DOUBLE_EQ(p.efficiency(100), 0.4);
  EXPECT_DOUBLE_EQ(p.efficiency(200), 0.6);
  EXPECT_DOUBLE_EQ(p.efficiency(300), 0.8);
  EXPECT_DOUBLE_EQ(p.efficiency(1e9), 0.8);
}

TEST(Profile, MoreRowsNeverTakeLessTime) {
  const Shape shape = find_shape("qwen3-30b-a3b", {});
  for (const char* name : {"h200-nvlink", "h200-ib", "a100-ib"}) {
    const Profile p = find_profile(name);
    double last = 0;
    for (std::int32_t rows = 1; rows < 40000; rows += 1 + rows / 50) {
      const std::int32_t group[] = {rows};
      const double seconds = gemm_seconds(Pass::forward, group, 1, p, shape);
      EXPECT_GE(seconds, last * (1 - 1e-12)) << name << " " << rows;
      EXPECT_GE(seconds, rows * flops_per_pair(Pass::forward, shape) / p.peak_flops);
      last = seconds;
    }
  }
}

TEST(ShapeNames, KnownByName) {
  const Shape own{"own", 64, 32, 8, 2, 4, 4};
  EXPECT_EQ(find_shape("own", own).hidden, 64);
  EXPECT_EQ(find_shape("own", own).element_bytes, 4);
  const Shape qwen = find_shape("qwen3-30b-a3b", own);
  EXPECT_EQ(qwen.hidden, 2048);
  EXPECT_EQ(qwen.width, 768);
  EXPECT_EQ(qwen.experts, 128);
  EXPECT_EQ(qwen.top_k, 8);
  EXPECT_EQ(qwen.layers, 48);
  EXPECT_EQ(find_shape("glm-4.5-air", own).layers, 45);
  EXPECT_EQ(find_shape("glm-4.5-air", own).width, 1408);
  for (const std::string& name : shape_names()) {
    EXPECT_EQ(find_shape(name, own).name, name);
  }
  // Routed experts' parameters, in billions: what the models' names say, less the rest.
  const auto billions = [&](const char* name) {
    const Shape s = find_shape(name, own);
    return s.expert_elements() * s.experts * s.layers / 1e9;
  };
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 29.0, 0.1);
  EXPECT_NEAR(billions("glm-4.5-air"), 99.7, 0.1);
  EXPECT_NEAR(billions("mixtral-8x7b"), 45.1, 0.1);
  EXPECT_NEAR(billions("deepseek-v3"), 653.9, 0.2);
  EXPECT_NEAR(billions("olmoe-1b-7b"), 6.4, 0.1);
}

TEST(ShapeNames, UnknownNamesListThoseThatExist) {
  try {
    find_shape("qwen3", {});
    FAIL();
  } catch (const InputError& error) {
    for (const std::string& name : shape_names()) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

std::vector<LayerWork> some_work(std::size_t count) {
  std::vector<LayerWork> all(count);
  std::uint64_t seed = 0;
  const auto number = [&] { return static_cast<std::int32_t>(hash({++seed}) >> 40); };
  const auto table = [&](int size) {
    std::vector<std::int32_t> t(static_cast<std::size_t>(size));
    for (auto& x : t) {
      x = number();
    }
    return t;
  };
  for (LayerWork& w : all) {
    w.tokens = number();
    w.forward_rows = table(3);
    w.forward_pairs = table(3);
    w.forward_gemm_rows = table(number() % 5);
    w.combine_rows = table(3);
    w.statistics_bytes = number();
    w.backward_rows = table(3);
    w.backward_pairs = table(3);
    w.backward_gemm_rows = table(number() % 5);
    w.recompute = number() % 2 == 0;
    w.again_rows = table(number() % 4);
    w.again_gemm_rows = table(number() % 5);
    w.cached_pairs = number();
    w.chunks = number();
    w.plan_cells = number();
    w.fetched_instances = number();
    w.scored_pairs = number();
    w.forward_bytes = number();
    w.backward_bytes = -number();
    w.forward_seconds = number() / 3.0;
    w.backward_seconds = number() / 7.0;
    w.exchange_seconds = number() * 1e-9;
    w.plan_seconds = number() * 1e-3;
    w.select_seconds = number() * 1e-4;
    w.forward_cpu_seconds = number() * 1e-5;
    w.backward_cpu_seconds = number() * 1e-6;
  }
  return all;
}

TEST(Pack, RoundTrip) {
  for (const std::size_t count : {0u, 1u, 7u}) {
    const std::vector<LayerWork> work = some_work(count);
    std::vector<std::int64_t> packed = pack(work);
    EXPECT_EQ(packed[0], static_cast<std::int64_t>(packed.size()));
    EXPECT_EQ(unpack(packed), work);
    packed.resize(packed.size() + 13);  // as an all_gather pads
    EXPECT_EQ(unpack(packed), work);
  }
}

TEST(Pack, DamageIsNoticed) {
  const std::vector<std::int64_t> packed = pack(some_work(3));
  EXPECT_THROW(unpack({}), InternalError);
  EXPECT_THROW(unpack(std::span(packed).first(packed.size() - 1)), InternalError);
  std::vector<std::int64_t> shorter = packed;
  shorter[0] -= 1;
  EXPECT_THROW(unpack(shorter), InternalError);
  std::vector<std::int64_t> fewer = packed;
  fewer[1] = 2;
  EXPECT_THROW(unpack(fewer), InternalError);
  std::vector<std::int64_t> huge = packed;
  huge[1] = std::int64_t{1} << 60;
  EXPECT_THROW(unpack(huge), InternalError);
}

}  // namespace
}  // namespace lrmoe::cost
