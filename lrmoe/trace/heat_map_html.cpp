#include <algorithm>
#include <array>
#include <cstdio>

#include "lrmoe/base/names.h"
#include "lrmoe/trace/heat_map.h"

namespace lrmoe::trace {
namespace {

using Rgb = std::array<double, 3>;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The colours of all shades as CSS variables.
std::string shades(const Rgb& low, const Rgb& middle, const Rgb& high) {
  std::string css;
  for (int shade = -kShades; shade <= kShades; ++shade) {
    const Rgb& end = shade < 0 ? low : high;
    const double part = static_cast<double>(std::abs(shade)) / kShades;
    char text[64];
    std::snprintf(text, sizeof text, "--c%d:rgb(%.0f,%.0f,%.0f);", shade + kShades,
                  middle[0] + part * (end[0] - middle[0]), middle[1] + part * (end[1] - middle[1]),
                  middle[2] + part * (end[2] - middle[2]));
    css += text;
  }
  return css;
}

std::string style() {
  std::string css = ":root{color-scheme:light dark;--ink:#222;--page:#fff;";
  css += shades({33, 102, 172}, {240, 240, 240}, {178, 24, 43});
  css += "}@media(prefers-color-scheme:dark){:root{--ink:#ddd;--page:#16181c;";
  css += shades({90, 160, 235}, {44, 46, 52}, {255, 110, 90});
  css +=
      "}}body{font:15px/1.4 system-ui,sans-serif;color:var(--ink);background:var(--page);"
      "margin:24px}svg{max-width:100%;height:auto}text{fill:var(--ink);font:12px "
      "system-ui,sans-serif}h1{font-size:20px;margin:0 0 4px}p{margin:0 0 12px}"
      ".end{text-anchor:end}.mid{text-anchor:middle}rect:hover{stroke:var(--ink)}";
  for (int i = 0; i <= 2 * kShades; ++i) {
    css += ".s" + std::to_string(i) + "{fill:var(--c" + std::to_string(i) + ")}";
  }
  return css;
}

struct Svg {
  std::string body;

  void cell(double x, double y, double w, double h, int shade, const std::string& title) {
    char text[128];
    std::snprintf(text, sizeof text,
                  "<rect class=\"s%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">",
                  shade + kShades, x, y, w, h);
    body += text;
    body += "<title>" + title + "</title></rect>\n";
  }
  void label(double x, double y, const char* kind, const std::string& words) {
    char text[96];
    std::snprintf(text, sizeof text, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", kind, x, y);
    body += text;
    body += words + "</text>\n";
  }
};

/// A step of 1, 2 or 5 times a power of ten that leaves `room` for each label.
int label_step(double size, double room) {
  int step = 1;
  for (int i = 0; size * step < room; ++i) {
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  }
  return step;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

constexpr double kLeft = 60, kTop = 50, kRight = 90;

void draw_cells(Svg& svg, const Summary& summary, double w, double h) {
  for (const LayerSummary& layer : summary.layers) {
    const double y = kTop + h * layer.layer;
    for (std::size_t e = 0; e < layer.heat.size(); ++e) {
      svg.cell(kLeft + w * static_cast<double>(e), y, w, h, shade_of(layer.heat[e]),
               "layer " + std::to_string(layer.layer) + ", expert " + std::to_string(e) + ": " +
                   number(layer.heat[e]) + " times the mean");
    }
  }
}

void draw_axes(Svg& svg, const Summary& summary, double w, double h) {
  const double right = kLeft + w * summary.info.experts;
  svg.label((kLeft + right) / 2, kTop - 28, "mid", "expert");
  for (int e = 0; e < summary.info.experts; e += label_step(w, 36)) {
    svg.label(kLeft + w * (e + 0.5), kTop - 8, "mid", std::to_string(e));
  }
  svg.label(kLeft - 8, kTop - 8, "end", "layer");
  svg.label(right + 10, kTop - 8, "start", "max/mean");
  const int step = label_step(h, 14);
  for (const LayerSummary& layer : summary.layers) {
    if (layer.layer % step == 0) {
      const double y = kTop + h * (layer.layer + 0.5) + 4;
      svg.label(kLeft - 8, y, "end", std::to_string(layer.layer));
      svg.label(right + 10, y, "start",
                number(*std::max_element(layer.heat.begin(), layer.heat.end())));
    }
  }
}

void draw_scale(Svg& svg, double y) {
  constexpr double kWide = 14;
  for (int shade = -kShades; shade <= kShades; ++shade) {
    svg.cell(kLeft + kWide * (shade + kShades), y, kWide, 14, shade, "of the scale");
  }
  const std::array<const char*, 7> words{"1/8", "1/4", "1/2", "mean", "2", "4", "8"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    svg.label(kLeft + kWide * (0.5 + static_cast<double>(i) * kShades / 3.0), y + 30, "mid",
              words[i]);
  }
}

}  // namespace

std::string heat_map_html(const Summary& summary) {
  const Info& info = summary.info;
  const double w = std::clamp(1100.0 / info.experts, 1.0, 26.0);
  const double h = std::clamp(700.0 / info.layers, 3.0, 26.0);
  Svg svg;
  draw_cells(svg, summary, w, h);
  draw_axes(svg, summary, w, h);
  const double below = kTop + h * info.layers + 24;
  draw_scale(svg, below);
  const std::string wide = number(kLeft + std::max(w * info.experts, 360.0) + kRight);
  const std::string high = number(below + 40);
  const std::string title = escaped(info.model.empty() ? summary.file : info.model);
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
         "<title>Routing of " +
         title + "</title><style>" + style() + "</style></head><body>\n<h1>Routing of " + title +
         "</h1>\n<p>" + std::to_string(info.experts) + " experts, top-" +
         std::to_string(info.top_k) + ", " + std::to_string(info.layers) + " layers, " +
         std::to_string(info.steps) + (info.steps == 1 ? " step" : " steps") +
         ": each cell is an expert's pairs over the mean of its layer.</p>\n<svg role=\"img\" "
         "aria-label=\"Heat map: layers by experts\" xmlns=\"http://www.w3.org/2000/svg\" "
         "width=\"" +
         wide + "\" height=\"" + high + "\" viewBox=\"0 0 " + wide + " " + high + "\">\n" +
         svg.body + "</svg>\n</body></html>\n";
}

}  // namespace lrmoe::trace
