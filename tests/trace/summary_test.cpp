#include "lrmoe/trace/summary.h"

#include <gtest/gtest.h>
#include <png.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/error.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/trace/heat_map.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"
#include "tests/trace/helpers.h"

namespace lrmoe::trace {
namespace {

using testing_traces::small_info;

Routing routing_of(std::vector<std::int32_t> ids, std::vector<float> gates) {
  Routing routing;
  routing.top_k = 2;
  routing.tokens = static_cast<std::int64_t>(ids.size()) / 2;
  routing.ids = std::move(ids);
  routing.gates = std::move(gates);
  return routing;
}

/// Two layers, two steps, four experts.
Trace two_steps() {
  const std::vector<float> gates{0.9F, 0.1F, 0.6F, 0.4F};
  return Trace(small_info(2, 2),
               {routing_of({0, 1, 0, 2}, gates), routing_of({0, 1, 2, 3}, gates),
                routing_of({0, 1, 3, 1}, gates), routing_of({0, 1, 2, kNotRouted}, gates)},
               "<b>.trace");
}

TEST(Summary, CountsByHand) {
  const Summary summary = summarise(two_steps(), 2);
  ASSERT_EQ(summary.layers.size(), 2U);
  const LayerSummary& first = summary.layers[0];
  EXPECT_EQ(first.tokens, 4);
  EXPECT_EQ(first.pairs, 8);
  EXPECT_EQ(first.not_routed, 0);
  EXPECT_DOUBLE_EQ(first.expert_imbalance, 2.0);  // 2 of a mean of 1, in both steps
  EXPECT_DOUBLE_EQ(first.rank_imbalance, 1.5);    // 3 and 1 pairs, both times
  EXPECT_DOUBLE_EQ(first.idle_experts, 1.0);
  EXPECT_NEAR(first.top_half_gates, 0.75, 1e-6);  // 0.9 and 0.6 of 2
  EXPECT_DOUBLE_EQ(first.drift, 0.5);             // {2,1,1,0} to {1,2,0,1} of 4
  EXPECT_EQ(first.heat, (std::vector<double>{1.5, 1.5, 0.5, 0.5}));
  const LayerSummary& second = summary.layers[1];
  EXPECT_EQ(second.not_routed, 1);
  EXPECT_NEAR(second.drift, 0.25, 1e-12);  // {1,1,1,1} / 4 to {1,1,1,0} / 3
  EXPECT_DOUBLE_EQ(second.expert_imbalance, (1.0 + 4.0 / 3) / 2);
  EXPECT_FALSE(summary.between_halves);
}

TEST(Summary, OneStepDriftsBetweenItsHalves) {
  const std::vector<float> gates(8, 0.5F);
  const Trace same(small_info(), {routing_of({0, 1, 2, 3, 0, 1, 2, 3}, gates)});
  EXPECT_EQ(summarise(same).layers[0].drift, 0);
  const Trace other(small_info(), {routing_of({0, 1, 0, 1, 2, 3, 2, 3}, gates)});
  EXPECT_EQ(summarise(other).layers[0].drift, 1);
  EXPECT_TRUE(summarise(other).between_halves);
}

TEST(Summary, AnEmptyLayerIsEven) {
  const Trace trace(small_info(), {routing_of({}, {})});
  const LayerSummary layer = summarise(trace, 3).layers[0];
  EXPECT_EQ(layer.expert_imbalance, 1);
  EXPECT_EQ(layer.rank_imbalance, 1);
  EXPECT_EQ(layer.heat, std::vector<double>(4, 0.0));
  EXPECT_NE(to_text(summarise(trace, 3)).find("layer"), std::string::npos);
}

TEST(Summary, TextIsAlignedAndJsonHasEverything) {
  const Summary summary = summarise(two_steps(), 2);
  const std::string text = to_text(summary);
  EXPECT_NE(text.find("\n    0       2.00         1.50      1.0      75.0%    50.0%\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("4 experts, top-2, 2 layers, 2 steps"), std::string::npos) << text;
  EXPECT_NE(text.find("15 pairs routed, 1 not routed"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["format"], "lrmoe-trace-info");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["trace"], "<b>.trace");
  EXPECT_EQ(json["drift_between"], "steps");
  EXPECT_EQ(json["layers"].size(), 2U);
  EXPECT_EQ(json["layers"][0]["rank_imbalance"], 1.5);
  EXPECT_EQ(json["layers"][1]["heat"].size(), 4U);
  EXPECT_EQ(json["mean"]["drift"], 0.375);
}

TEST(HeatMap, ShadesArePowersOfTwo) {
  EXPECT_EQ(shade_of(1), 0);
  EXPECT_EQ(shade_of(8), kShades);
  EXPECT_EQ(shade_of(100), kShades);
  EXPECT_EQ(shade_of(2), kShades / 3);
  EXPECT_EQ(shade_of(0.5), -kShades / 3);
  EXPECT_EQ(shade_of(0.125), -kShades);
  EXPECT_EQ(shade_of(0), -kShades);
}

TEST(HeatMap, PageStandsAlone) {
  Summary summary = summarise(two_steps());
  summary.info.model = "<b>&\"model\"";
  const std::string page = heat_map_html(summary);
  EXPECT_NE(page.find("Routing of &lt;b&gt;&amp;&quot;model&quot;"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("<title>layer 0, expert 1: 1.50 times the mean</title>"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
  // Nothing is fetched.
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("href"), std::string::npos);
  std::size_t cells = 0;
  for (std::size_t at = page.find("<rect"); at != std::string::npos;
       at = page.find("<rect", at + 1)) {
    ++cells;
  }
  EXPECT_EQ(cells, 8U + 2 * kShades + 1);
}

TEST(HeatMap, PictureShowsTheHotExperts) {
  Summary summary = summarise(two_steps());
  summary.layers[0].heat = {8.0, 1.0, 0.0, 1.0};
  const std::string bytes = heat_map_png(summary);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  const auto at = [&](std::size_t x, std::size_t y) {
    const std::uint8_t* p = pixels.data() + 3 * (y * image.width + x);
    return std::array<int, 3>{p[0], p[1], p[2]};
  };
  // Cells of 24 by 24 pixels from (56, 44) on.
  EXPECT_EQ(at(56 + 12, 44 + 12), (std::array<int, 3>{178, 24, 43}));
  EXPECT_EQ(at(56 + 24 + 12, 44 + 12), (std::array<int, 3>{240, 240, 240}));
  EXPECT_EQ(at(56 + 48 + 12, 44 + 12), (std::array<int, 3>{33, 102, 172}));
}

TEST(HeatMap, NamesDecideTheForm) {
  const testing::TemporaryFolder folder;
  const Summary summary = summarise(two_steps());
  write_heat_map(folder / "a.png", summary);
  write_heat_map(folder / "a.html", summary);
  EXPECT_EQ(read_text(folder / "a.png").substr(1, 3), "PNG");
  EXPECT_EQ(read_text(folder / "a.html").substr(0, 15), "<!DOCTYPE html>");
  EXPECT_EQ(testing::message_of<InputError>([&] { write_heat_map("a.gif", summary); }),
            "--heat-map 'a.gif': its name must end with .png or .html");
  Info huge = summary.info;
  huge.layers = 1000;
  huge.experts = 65536;
  EXPECT_EQ(testing::message_of<InputError>([&] { check_heat_map("a.png", huge); }),
            "--heat-map: 1000 layers of 65536 experts are more than 4000000 cells");
}

}  // namespace
}  // namespace lrmoe::trace
