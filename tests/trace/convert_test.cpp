#include "lrmoe/trace/convert.h"

#include <gtest/gtest.h>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::trace {
namespace {

using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;
using Gates = std::vector<float>;

std::string refused_json(const std::string& text) {
  return testing::message_of<InputError>([&] { from_json_lines(text, "x.jsonl"); });
}

std::string refused_table(const std::string& text) {
  return testing::message_of<InputError>([&] { from_table(text, "x.txt"); });
}

/// A line with its step, layer and token.
std::string line(const std::string& step, const std::string& layer, const std::string& token) {
  return "{\"step\":" + step + ",\"layer\":" + layer + ",\"token\":" + token +
         ",\"experts\":[0],\"gates\":[1]}\n";
}

TEST(JsonLines, ReadsLinesInAnyOrder) {
  const std::string text =
      "{\"layer\":1,\"token\":0,\"experts\":[3,0],\"gates\":[0.75,0.25]}\r\n"
      "\n"
      "{\"token\":1,\"layer\":0,\"gates\":[1,0],\"experts\":[1,-1]}\n"
      "  {\"layer\":0,\"token\":0,\"experts\":[2,1],\"gates\":[0.5,0.5]}";
  const Trace trace = from_json_lines(text, "dir/x.jsonl");
  EXPECT_EQ(trace.info().experts, 4);
  EXPECT_EQ(trace.info().top_k, 2);
  EXPECT_EQ(trace.info().steps, 1);
  EXPECT_EQ(trace.info().layers, 2);
  EXPECT_EQ(trace.info().source, "converted from x.jsonl");
  EXPECT_EQ(trace.read(0, 0).ids, (Ids{2, 1, 1, kNotRouted}));
  EXPECT_EQ(trace.read(0, 0).gates, (Gates{0.5F, 0.5F, 1, 0}));
  EXPECT_EQ(trace.read(0, 1).ids, (Ids{3, 0}));
  EXPECT_EQ(from_json_lines(text, "x", {.experts = 9}).info().experts, 9);
}

TEST(JsonLines, ReadsStepsSourcesAndScores) {
  const std::string text =
      R"({"step":1,"layer":0,"token":0,"experts":[0],"gates":[1],"source":2,"scores":[0.5]})"
      "\n"
      R"({"step":0,"layer":0,"token":0,"experts":[1],"gates":[1],"source":0,"scores":[3]})";
  const Trace trace = from_json_lines(text, "x");
  EXPECT_EQ(trace.info().steps, 2);
  EXPECT_EQ(trace.info().ranks, 3);
  EXPECT_EQ(trace.read(0, 0).sources, Ids{0});
  EXPECT_EQ(trace.read(1, 0).sources, Ids{2});
  EXPECT_EQ(trace.read(1, 0).scores, Gates{0.5F});
}

TEST(JsonLines, EveryMalformedLineIsNamed) {
  const std::string good = R"({"layer":0,"token":0,"experts":[0,1],"gates":[0.5,0.5]})";
  const auto second = [&](const std::string& text) { return refused_json(good + "\n" + text); };
  const std::string at = "'x.jsonl' line 2: ";
  EXPECT_EQ(second("{\"layer\":").find(at + "not JSON: column "), 0U);
  EXPECT_EQ(second("{\"\xff\":1}").find(at + "not JSON: "), 0U);
  EXPECT_EQ(second("[1]"), at + "no JSON object; it takes "
                                R"({"layer":..,"token":..,"experts":[..],"gates":[..]})");
  EXPECT_EQ(second(R"({"layer":0,"token":1,"experts":[0,1]})"),
            at + "no gates; it takes layer, token, experts and gates");
  const auto with = [&](const std::string& experts, const std::string& gates,
                        const std::string& more = "") {
    return second("{\"layer\":0,\"token\":1,\"experts\":" + experts + ",\"gates\":" + gates + more +
                  "}");
  };
  EXPECT_EQ(with("[0,1]", "[1,0]", ",\"gatess\":1"),
            at + "unknown key 'gatess'; did you mean 'gates'?");
  EXPECT_EQ(with("[0,1]", "[1,0]", ",\"gates\":[1,0]"), at + "a key stands twice");
  EXPECT_EQ(with("3", "[1,0]"), at + "experts = 3; it takes a list of numbers");
  EXPECT_EQ(with("[0,1.5]", "[1,0]"), at + "experts: an item = 1.5; it takes a whole number");
  EXPECT_EQ(with("[0,99999999999]", "[1,0]"),
            at + "experts: an item = 99999999999 is beyond any rank or expert");
  EXPECT_EQ(with("[0,70000]", "[1,0]"),
            at + "expert 70000 is not from 0 to 65535 (or -1: not routed)");
  EXPECT_EQ(with("[0,-2]", "[1,0]"), at + "expert -2 is not from 0 to 65535 (or -1: not routed)");
  EXPECT_EQ(with("[4,4]", "[1,0]"), at + "expert 4 stands twice");
  EXPECT_EQ(with("[0]", "[1]"), at + "1 experts where the lines before have 2 (write -1 for a pair "
                                     "that was not routed)");
  EXPECT_EQ(with("[0,1]", "[1]"), at + "1 gates for 2 experts");
  EXPECT_EQ(with("[0,1]", "[1,\"x\"]"), at + "gates holds \"x\"; it takes numbers");
  EXPECT_EQ(with("[0,1]", "[1,[[[2]]]]").find(at), 0U);
  EXPECT_EQ(with("[0,1]", "[1,1e300]"), at + "gates holds 1e+300, which is too large");
  EXPECT_EQ(with("[0,1]", "[1,1e999]").find(at + "not JSON: "), 0U);
  EXPECT_EQ(with("[0,1]", "[1,0]", ",\"source\":0"),
            at + "source and scores must stand in every line or in none");
  EXPECT_EQ(refused_json(""), "'x.jsonl': there is no token in it");
  EXPECT_EQ(refused_json(std::string(2000000, ' ')),
            "'x.jsonl' line 1: more than 1048576 characters; it takes one token a line");
}

TEST(JsonLines, GapsAndRepetitionsAreNamed) {
  EXPECT_EQ(refused_json(line("0", "0", "0") + line("0", "0", "0")),
            "'x.jsonl' line 2: step 0, layer 0, token 0 stands in line 1 already");
  EXPECT_EQ(refused_json(line("0", "0", "0") + line("0", "0", "2")),
            "'x.jsonl' line 2: step 0, layer 0, token 2, but there is no token 1 of it; they count "
            "from 0");
  const std::string rule = "; steps and layers count from 0, and each step has all layers";
  EXPECT_EQ(refused_json(line("0", "1", "0")),
            "'x.jsonl' line 1: step 0, layer 1, but there is no token of step 0, layer 0" + rule);
  EXPECT_EQ(refused_json(line("0", "0", "0") + line("0", "2", "0")),
            "'x.jsonl' line 2: step 0, layer 2, but there is no token of step 0, layer 1" + rule);
  EXPECT_EQ(refused_json(line("0", "0", "0") + line("0", "1", "0") + line("1", "0", "0")),
            "'x.jsonl': there is no token of step 1, layer 1" + rule);
  EXPECT_EQ(refused_json(line("0", "0", "-1")), "'x.jsonl' line 1: token -1: they count from 0");
}

// What a hostile line names must not be allocated.
TEST(JsonLines, HugeIndicesTakeNoMemory) {
  for (const std::string huge : {"1000000000000000", "9223372036854775807"}) {
    EXPECT_EQ(refused_json(line("0", "0", huge)),
              "'x.jsonl' line 1: step 0, layer 0, token " + huge +
                  ", but there is no token 0 of it; they count from 0");
    EXPECT_EQ(refused_json(line("0", huge, "0")).find("'x.jsonl' line 1: step 0, layer " + huge),
              0U);
    EXPECT_EQ(refused_json(line(huge, huge, "0")).find("'x.jsonl' line 1: step " + huge), 0U);
  }
  EXPECT_EQ(refused_json(line("0", "0", "9223372036854775808")),
            "'x.jsonl' line 1: token = 9223372036854775808; it takes a whole number");
  EXPECT_EQ(refused_json(std::string(500000, '[')).find("'x.jsonl' line 1: "), 0U);
}

TEST(Table, ReadsIdsThenGates) {
  // Two tabs between ids and gates, as in the dumps that ESFT publishes.
  const Trace trace = from_table("3\t0\t\t0.75\t0.25\n1\t2\t\t1e-1\t0.5\n", "x.txt");
  EXPECT_EQ(trace.info().experts, 4);
  EXPECT_EQ(trace.read(0, 0).ids, (Ids{3, 0, 1, 2}));
  EXPECT_EQ(trace.read(0, 0).gates, (Gates{0.75F, 0.25F, 0.1F, 0.5F}));
}

TEST(Table, ReadsHeadersLayersAndPairs) {
  const Trace trace = from_table(
      "id0, id1, gate0, gate1\n"
      "0, 1, 0.5, 0.5\n"
      "# a remark\n"
      "\n"
      "# layer 1\r\n"
      "2;-1;1;0\r\n"
      "#step 1 layer 0\n"
      "1:0.25 3:0.75\n"
      "# step 1 layer 1\n"
      "0 3 0.5 0.5\n",
      "x.csv");
  EXPECT_EQ(trace.info().steps, 2);
  EXPECT_EQ(trace.info().layers, 2);
  EXPECT_EQ(trace.read(0, 1).ids, (Ids{2, kNotRouted}));
  EXPECT_EQ(trace.read(1, 0).ids, (Ids{1, 3}));
  EXPECT_EQ(trace.read(1, 0).gates, (Gates{0.25F, 0.75F}));
}

TEST(Table, EveryMalformedLineIsNamed) {
  const auto second = [](const std::string& text) {
    return refused_table("0 1 0.5 0.5\n" + text + "\n");
  };
  const std::string at = "'x.txt' line 2: ";
  EXPECT_EQ(second("0 1 0.5"), at + "3 numbers; it takes k experts and then k gates");
  EXPECT_EQ(second("0 x 0.5 0.5"), at + "'x' is no expert's number");
  EXPECT_EQ(second("0 1.0 0.5 0.5"), at + "'1.0' is no expert's number");
  EXPECT_EQ(second("0 1 0.5 nan"), at + "'nan' is no gate (a finite number)");
  EXPECT_EQ(second("0 1 0.5 1e99"), at + "'1e99' is no gate (a finite number)");
  EXPECT_EQ(second("0 99999999999 1 1"), at + "'99999999999' is no expert's number");
  EXPECT_EQ(second("0:0.5 1"), at + "'1' is no id:gate, as the first of the line is");
  EXPECT_EQ(second("0 1 2 0.5 0.5 0.5"), at + "3 experts where the lines before have 2 (write -1 "
                                              "for a pair that was not routed)");
  EXPECT_EQ(second("# layer x"), at + "no numbers behind 'step' and 'layer'");
  EXPECT_EQ(second("# layer 9999999999999\n0 1 1 1")
                .find("'x.txt' line 3: step 0, layer 9999999999999, but there is no token of"),
            0U);
  EXPECT_EQ(refused_table("# nothing\n"), "'x.txt': there is no token in it");
}

TEST(Convert, TellsFormsApartAndTakesFolders) {
  const TemporaryFolder folder;
  write_file(folder / "a", "\n {\"layer\":0,\"token\":0,\"experts\":[1],\"gates\":[1]}");
  write_file(folder / "b", "1 1.0\n");
  EXPECT_EQ(convert(folder / "a").read(0, 0), convert(folder / "b").read(0, 0));
  std::filesystem::create_directory(folder / "c");
  write_file(folder / "c" / "layer_10.txt", "2 1\n");
  write_file(folder / "c" / "layer_9.txt", "1 1\n0 1\n");
  write_file(folder / "c" / "readme.md", "not a table");
  const Trace trace = convert(folder / "c");
  EXPECT_EQ(trace.info().layers, 2);
  EXPECT_EQ(trace.info().experts, 3);
  EXPECT_EQ(trace.read(0, 0).ids, (Ids{1, 0}));
  EXPECT_EQ(trace.read(0, 1).ids, Ids{2});
  std::filesystem::create_directory(folder / "d");
  EXPECT_EQ(testing::message_of<InputError>([&] { convert(folder / "d"); }),
            "folder '" + (folder / "d").string() +
                "' has no table (.txt, .csv or .tsv) in it; it takes one a layer");
  EXPECT_EQ(testing::message_of<InputError>([&] { convert(folder / "none"); }).find("cannot read"),
            0U);
}

}  // namespace
}  // namespace lrmoe::trace
