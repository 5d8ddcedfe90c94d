#include "lrmoe/trace/writer.h"

#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "tests/trace/helpers.h"

namespace lrmoe::trace {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing_traces::small_info;
using testing_traces::small_routing;

Routing full_routing(int shift) {
  Routing routing = small_routing(shift);
  routing.sources = {0, 1, 1};
  routing.scores = {1, 2, 3, 4, 5, static_cast<float>(shift)};
  return routing;
}

void expect_layers(const fs::path& path, int steps, int layers) {
  const Trace trace = Trace::open(path);
  ASSERT_EQ(trace.info().steps, steps);
  ASSERT_EQ(trace.info().layers, layers);
  for (int s = 0; s < steps; ++s) {
    for (int l = 0; l < layers; ++l) {
      EXPECT_EQ(trace.read(s, l), full_routing(s + l)) << s << " " << l;
    }
  }
}

void append_step(Writer& writer, int step, int layers) {
  for (int l = 0; l < layers; ++l) {
    writer.append(full_routing(step + l));
  }
}

TEST(TraceWriter, RoundTrip) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  Info info = small_info(12, 3);
  info.ranks = 2;
  info.first = 7;
  info.hidden = 64;
  info.model = "with \"quotes\" and \xff";
  {
    Writer writer(path, info);
    for (int s = 0; s < 12; ++s) {
      append_step(writer, s, 3);
      EXPECT_FALSE(fs::exists(path));
    }
    EXPECT_EQ(writer.steps(), 12);
    writer.commit();
  }
  expect_layers(path, 12, 3);
  Info read = Trace::open(path).info();
  EXPECT_EQ(read.model, "with \"quotes\" and \xef\xbf\xbd");
  read.model = info.model;
  EXPECT_EQ(read, info);
  write(folder / "copy", Trace::open(path));
  expect_layers(folder / "copy", 12, 3);
}

TEST(TraceWriter, IdsTakeTheSmallestType) {
  const TemporaryFolder folder;
  for (const auto& [experts, dtype] : {std::pair(255, "U8"), std::pair(256, "U16"),
                                       std::pair(65535, "U16"), std::pair(65536, "I32")}) {
    Info info = small_info();
    info.experts = experts;
    Routing routing = small_routing();
    routing.ids = {experts - 1, 0, kNotRouted, 1, 2, kNotRouted};
    write(folder / "x", Trace(info, {routing}));
    EXPECT_EQ(safetensors::Reader(folder / "x").at("s0.l0.ids").dtype, dtype);
    EXPECT_EQ(Trace::open(folder / "x").read(0, 0), routing);
  }
}

TEST(TraceWriter, LiveFileIsATraceAfterEveryStep) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  {
    Writer writer(path, small_info(1000, 2), {.live = true});
    writer.append(full_routing(0));
    EXPECT_FALSE(fs::exists(path));
    writer.append(full_routing(1));
    expect_layers(path, 1, 2);
    for (int s = 1; s < 30; ++s) {
      append_step(writer, s, 2);
      expect_layers(path, s + 1, 2);
    }
    writer.append(full_routing(30));  // a step that never becomes whole
    writer.flush();
    expect_layers(path, 30, 2);
  }
  expect_layers(path, 30, 2);
}

TEST(TraceWriter, ResumeKeepsWholeStepsAndGoesOn) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  const WriterOptions live{.live = true};
  {
    Writer writer(path, small_info(10, 2), live);
    for (int s = 0; s < 5; ++s) {
      append_step(writer, s, 2);
    }
  }
  {
    const auto writer = resume(path, small_info(5000, 2), 3, live);
    EXPECT_EQ(writer->steps(), 3);
    expect_layers(path, 5, 2);  // the old file stays until there is more
    append_step(*writer, 3, 2);
    expect_layers(path, 4, 2);
    append_step(*writer, 4, 2);
    writer->commit();
  }
  expect_layers(path, 5, 2);
  EXPECT_EQ(testing::message_of<InputError>([&] { resume(path, small_info(10, 2), 6, live); }),
            "'" + path.string() + "' holds 5 steps, and the run goes on after 6 of them");
  EXPECT_EQ(testing::message_of<InputError>([&] { resume(path, small_info(10, 3), 5, live); }),
            "'" + path.string() +
                "' is not the trace of this run: it has 2 layers of 4 experts, top-2, on 0 ranks, "
                "from step 1 "
                "on");
  expect_layers(path, 5, 2);
}

TEST(TraceWriter, NothingIsLeftWithoutAStep) {
  const TemporaryFolder folder;
  {
    Writer writer(folder / "x", small_info(), {.live = true});
    writer.commit();
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(TraceWriter, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_EQ(testing::message_of<InputError>([&] { Writer("/dev/null", small_info()); }),
            "cannot write a trace to '/dev/null': it is no regular file");
  EXPECT_EQ(
      testing::message_of<InputError>([&] {
        Writer(folder / "x", small_info(1'000'000, 100));
      }).find("'" + (folder / "x").string() + "': 1000000 steps of 100 layers need a header of "),
      0U);
  Writer writer(folder / "x", small_info(1, 2));
  Routing wrong = small_routing();
  wrong.ids[0] = 4;
  EXPECT_THROW(writer.append(wrong), InputError);
  writer.append(small_routing());
  EXPECT_THROW(writer.commit(), InternalError);  // the step lacks a layer
}

}  // namespace
}  // namespace lrmoe::trace
