#include "lrmoe/trace/trace.h"

#include <gtest/gtest.h>

#include <limits>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/demand.h"
#include "lrmoe/trace/writer.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "tests/trace/helpers.h"

namespace lrmoe::trace {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing_traces::RawTrace;
using testing_traces::small_info;
using testing_traces::small_routing;

RawTrace good() {
  RawTrace raw;
  raw.add<std::uint8_t>("s0.l0.ids", "U8", {3, 2}, {0, 1, 2, 255, 3, 0});
  // 1, 0.5, 2^-24 (the least subnormal), 65504 (the largest), -2, 0
  raw.add<std::uint16_t>("s0.l0.gates", "F16", {3, 2},
                         {0x3c00, 0x3800, 0x0001, 0x7bff, 0xc000, 0x0000});
  return raw;
}

/// What the reader says of a file, after its name.
std::string refusal(const RawTrace& raw) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  raw.write(path);
  const std::string message = testing::message_of<InputError>([&] {
    const Trace trace = Trace::open(path);
    trace.read(0, 0);
  });
  const std::string name = "'" + path.string() + "': ";
  EXPECT_EQ(message.find(name), 0U) << message;
  return message.substr(std::min(name.size(), message.size()));
}

TEST(Trace, ReadsEveryType) {
  const TemporaryFolder folder;
  RawTrace raw = good();
  raw.add<std::int32_t>("s0.l0.source", "I32", {3}, {0, 1, 1});
  raw.add<float>("s0.l0.scores", "F32", {3, 2}, {1, 2, 3, 4, 5, 6});
  raw.add<std::uint8_t>("s0.l0.later", "U8", {1}, {0});  // of a later version: left alone
  raw.metadata["hidden"] = "64";
  raw.write(folder / "a");
  const Trace trace = Trace::open(folder / "a");
  EXPECT_EQ(trace.info().experts, 4);
  EXPECT_EQ(trace.info().hidden, 64);
  EXPECT_EQ(trace.info().expert_width, 0);
  EXPECT_EQ(trace.tokens(0, 0), 3);
  EXPECT_TRUE(trace.has_sources(0, 0));
  EXPECT_TRUE(trace.has_scores(0, 0));
  const Routing routing = trace.read(0, 0);
  EXPECT_EQ(routing.ids, (std::vector<std::int32_t>{0, 1, 2, kNotRouted, 3, 0}));
  EXPECT_EQ(routing.gates, (std::vector<float>{1, 0.5F, 0x1p-24F, 65504, -2, 0}));
  EXPECT_EQ(routing.sources, (std::vector<std::int32_t>{0, 1, 1}));
  EXPECT_EQ(routing.scores, (std::vector<float>{1, 2, 3, 4, 5, 6}));

  RawTrace wide;
  wide.metadata = raw.metadata;
  wide.add<std::uint16_t>("s0.l0.ids", "U16", {1, 2}, {3, 65535});
  wide.add<std::uint16_t>("s0.l0.gates", "BF16", {1, 2}, {0x3f80, 0xc000});
  wide.write(folder / "b");
  EXPECT_EQ(Trace::open(folder / "b").read(0, 0).ids, (std::vector<std::int32_t>{3, kNotRouted}));
  EXPECT_EQ(Trace::open(folder / "b").read(0, 0).gates, (std::vector<float>{1, -2}));

  RawTrace widest;
  widest.metadata = raw.metadata;
  widest.add<std::int32_t>("s0.l0.ids", "I32", {1, 2}, {-1, 2});
  widest.add<float>("s0.l0.gates", "F32", {1, 2}, {0.125F, 3});
  widest.write(folder / "c");
  EXPECT_EQ(Trace::open(folder / "c").read(0, 0).ids, (std::vector<std::int32_t>{kNotRouted, 2}));
}

TEST(Trace, RefusesWrongMetadata) {
  const auto with = [](const std::string& key, const std::string& value) {
    RawTrace raw = good();
    raw.metadata[key] = value;
    return refusal(raw);
  };
  EXPECT_EQ(with("format", "x"), "no routing trace: its metadata has no format = 'lrmoe-trace'");
  EXPECT_EQ(with("version", "2"), "version '2' of the trace format; this program reads version 1");
  for (const std::string value : {"", "x", "-1", "1.5", " 4", "4 ", "99999999999999999999"}) {
    EXPECT_EQ(with("num_experts", value), "num_experts = '" + value +
                                              "' in the metadata is not a whole number that will "
                                              "do");
  }
  EXPECT_EQ(with("num_experts", "0"), "num_experts = 0; it takes 1 to 65536");
  EXPECT_EQ(with("top_k", "5"), "top_k = 5; it takes 1 to 4");
  EXPECT_EQ(with("num_layers", "0"), "num_layers = 0; it takes 1 to 1024");
  EXPECT_EQ(with("num_layers", "1025"), "num_layers = 1025; it takes 1 to 1024");
  EXPECT_EQ(with("hidden", "1000000000"), "hidden = 1000000000; it takes 0 to 65536");
  EXPECT_EQ(with("expert_width", "65537"), "expert_width = 65537; it takes 0 to 65536");
  EXPECT_EQ(with("ranks", "16385"), "ranks = 16385; it takes 0 to 16384");
  EXPECT_EQ(with("num_steps", "1000000000"),
            "there is no tensor 's1.l0.ids', though the metadata has 1000000000 steps of 1 layers");
  RawTrace raw = good();
  raw.metadata.erase("top_k");
  EXPECT_EQ(refusal(raw), "the metadata has no top_k");
}

TEST(Trace, RefusesTensorsThatDoNotAgree) {
  RawTrace raw = good();
  raw.tensors[0].dtype = "I8";
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.ids': dtype I8; it takes U8 or U16 or I32");
  raw = good();
  raw.tensors[0].shape = {2, 3};
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.ids': shape [2, 3]; it takes [tokens, top_k], top_k = 2");
  raw = good();
  raw.tensors[1].shape = {6};
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.gates': shape [6], but [3, 2] goes with the ids");
  raw = good();
  raw.tensors.pop_back();
  EXPECT_EQ(refusal(raw),
            "there is no tensor 's0.l0.gates', though the metadata has 1 steps of 1 layers");
  raw = good();
  raw.add<std::int64_t>("s0.l0.source", "I64", {3}, {0, 0, 0});
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.source': dtype I64; it takes I32");
  raw = good();
  raw.add<float>("s0.l0.scores", "F32", {3}, {0, 0, 0});
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.scores': shape [3], but [3, 2] goes with the ids");
  raw = good();
  raw.add<std::uint8_t>("s1.l0.ids", "U8", {0, 2}, {});
  EXPECT_EQ(refusal(raw),
            "3 tensors of ids and gates, as 's1.l0.ids', but the metadata's steps and layers have "
            "2");
  raw = good();
  raw.metadata["num_experts"] = "256";
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.ids': U8 ids cannot name 256 experts");
}

TEST(Trace, RefusesWrongValues) {
  RawTrace raw = good();
  raw.tensors[0].bytes[2] = std::byte{4};
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.ids', token 1: expert 4 is none of the 4 (from 0)");
  raw = good();
  raw.tensors[0].bytes[1] = std::byte{0};
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.ids', token 0: expert 0 stands twice");
  raw = good();
  raw.tensors[1].bytes[7] = std::byte{0x7c};  // 0x7cff: not a number
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.gates', token 1: value 1 is not a finite number");
  raw = good();
  raw.add<std::int32_t>("s0.l0.source", "I32", {3}, {0, -1, 0});
  EXPECT_EQ(refusal(raw).find("tensor 's0.l0.source', token 1: rank -1 is not from 0 to "), 0U);
  raw.tensors.pop_back();
  raw.metadata["ranks"] = "2";
  raw.add<std::int32_t>("s0.l0.source", "I32", {3}, {0, 1, 2});
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.source', token 2: rank 2 is not from 0 to 1");
  raw = good();
  raw.add<float>("s0.l0.scores", "F32", {3, 2},
                 {0, 0, 0, 0, 0, std::numeric_limits<float>::infinity()});
  EXPECT_EQ(refusal(raw), "tensor 's0.l0.scores', token 2: value 1 is not a finite number");
}

TEST(Trace, InMemoryIsCheckedAlike) {
  const Trace trace(small_info(1, 2), {small_routing(), small_routing(1)});
  EXPECT_EQ(trace.read(0, 1), small_routing(1));
  EXPECT_EQ(trace.tokens(0, 0), 3);
  EXPECT_FALSE(trace.has_scores(0, 0));
  EXPECT_EQ(testing::message_of<InputError>([] { Trace(small_info(2, 1), {small_routing()}); }),
            "'trace': 1 layers, but its steps and layers are 2");
  Routing twice = small_routing();
  twice.ids[1] = 0;
  EXPECT_EQ(testing::message_of<InputError>([&] { Trace(small_info(), {twice}); }),
            "'trace': tensor 's0.l0.ids', token 0: expert 0 stands twice");
  EXPECT_THROW(trace.read(1, 0), InternalError);
}

TEST(Trace, RealTracesHoldTheirPairs) {
  const fs::path path = fs::path(LRMOE_SOURCE_DIR) / "../shared/data/esft-intent.trace.safetensors";
  if (!fs::exists(path)) {
    GTEST_SKIP() << path << " is not there";
  }
  const Trace trace = Trace::open(path);
  EXPECT_EQ(trace.info().experts, 64);
  EXPECT_EQ(trace.info().top_k, 6);
  EXPECT_EQ(trace.info().layers, 26);
  EXPECT_EQ(trace.info().expert_width, 1408);
  for (int l = 0; l < 26; ++l) {
    const Routing routing = trace.read(0, l);
    EXPECT_EQ(routing.tokens, 8222);
    EXPECT_EQ(routed_pairs(routing), 8222 * 6);
  }
}

TEST(Demand, CountsBySource) {
  Routing routing = small_routing();  // {0,1} {2,0} {3,0}
  EXPECT_EQ(demand(routing, 4, 1), (std::vector<std::int32_t>{3, 1, 1, 1}));
  // Runs of 2 and 1 tokens.
  EXPECT_EQ(demand(routing, 4, 2), (std::vector<std::int32_t>{2, 1, 1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(pairs_per_expert(routing, 4), (std::vector<std::int64_t>{3, 1, 1, 1}));
  routing.ids[1] = kNotRouted;
  EXPECT_EQ(demand(routing, 4, 1), (std::vector<std::int32_t>{3, 0, 1, 1}));
  EXPECT_EQ(routed_pairs(routing), 5);
  routing.sources = {1, 0, 1};
  EXPECT_EQ(demand(routing, 4, 2), (std::vector<std::int32_t>{1, 0, 1, 0, 2, 0, 0, 1}));
  EXPECT_EQ(slice(routing, 1, 3).ids, (std::vector<std::int32_t>{2, 0, 3, 0}));
  EXPECT_EQ(slice(routing, 1, 3).sources, (std::vector<std::int32_t>{0, 1}));
  EXPECT_TRUE(slice(routing, 3, 3).scores.empty());
}

TEST(Demand, SourcesOfAnotherNumberOfRanksAreCutAnew) {
  Routing routing = small_routing();
  routing.sources = {1, 0, 1};
  EXPECT_EQ(sources_of(routing, 2, 2), routing.sources);
  // In the order of their sources the tokens are 1, 0, 2.
  EXPECT_EQ(sources_of(routing, 3, 2), (std::vector<std::int32_t>{1, 0, 2}));
  EXPECT_EQ(sources_of(routing, 1), (std::vector<std::int32_t>{0, 0, 0}));
  // Nobody says how many ranks there were, and they fit: as given.
  EXPECT_EQ(sources_of(routing, 3), routing.sources);
  routing.sources.clear();
  EXPECT_EQ(sources_of(routing, 2), (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(sources_of(routing, 5), (std::vector<std::int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace lrmoe::trace
