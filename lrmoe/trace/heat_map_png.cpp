#include <png.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/heat_map.h"

namespace lrmoe::trace {
namespace {

struct Colour {
  std::uint8_t r, g, b;
};
constexpr Colour kInk{34, 34, 34};
constexpr int kGlyph = 4;  // columns of a letter and the gap behind it
constexpr int kZoom = 2;   // pixels of a letter's dot

/// Letters of 3 by 5 dots, rows from the top, the left dot the highest bit.
std::array<int, 5> glyph(char c) {
  switch (c) {
    case '0':
      return {7, 5, 5, 5, 7};
    case '1':
      return {2, 6, 2, 2, 7};
    case '2':
      return {7, 1, 7, 4, 7};
    case '3':
      return {7, 1, 3, 1, 7};
    case '4':
      return {5, 5, 7, 1, 1};
    case '5':
      return {7, 4, 7, 1, 7};
    case '6':
      return {7, 4, 7, 5, 7};
    case '7':
      return {7, 1, 2, 2, 2};
    case '8':
      return {7, 5, 7, 5, 7};
    case '9':
      return {7, 5, 7, 1, 7};
    case '/':
      return {1, 1, 2, 4, 4};
    case 'a':
      return {2, 5, 7, 5, 5};
    case 'e':
      return {7, 4, 6, 4, 7};
    case 'l':
      return {4, 4, 4, 4, 7};
    case 'm':
      return {5, 7, 7, 5, 5};
    case 'n':
      return {6, 5, 5, 5, 5};
    case 'p':
      return {6, 5, 6, 4, 4};
    case 'r':
      return {6, 5, 6, 5, 5};
    case 't':
      return {7, 2, 2, 2, 2};
    case 'x':
      return {5, 5, 2, 5, 5};
    case 'y':
      return {5, 5, 2, 2, 2};
    default:
      return {0, 0, 0, 0, 0};
  }
}

Colour colour_of(int shade) {
  constexpr std::array<int, 3> kLow{33, 102, 172}, kMiddle{240, 240, 240}, kHigh{178, 24, 43};
  const std::array<int, 3>& end = shade < 0 ? kLow : kHigh;
  const auto mixed = [&](std::size_t i) {
    return static_cast<std::uint8_t>(kMiddle[i] +
                                     (end[i] - kMiddle[i]) * std::abs(shade) / kShades);
  };
  return {mixed(0), mixed(1), mixed(2)};
}

class Picture {
 public:
  Picture(int width, int height)
      : width_(width),
        height_(height),
        pixels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3, 255) {}

  void fill(int x, int y, int w, int h, Colour colour) {
    for (int j = std::max(y, 0); j < std::min(y + h, height_); ++j) {
      for (int i = std::max(x, 0); i < std::min(x + w, width_); ++i) {
        std::uint8_t* at =
            pixels_.data() + (static_cast<std::size_t>(j) * static_cast<std::size_t>(width_) +
                              static_cast<std::size_t>(i)) *
                                 3;
        at[0] = colour.r;
        at[1] = colour.g;
        at[2] = colour.b;
      }
    }
  }

  static int width_of(const std::string& text) {
    return (static_cast<int>(text.size()) * kGlyph - 1) * kZoom;
  }

  void write(int x, int y, const std::string& text) {
    for (const char c : text) {
      const std::array<int, 5> rows = glyph(c);
      for (int j = 0; j < 5; ++j) {
        for (int i = 0; i < 3; ++i) {
          if ((rows[static_cast<std::size_t>(j)] >> (2 - i) & 1) != 0) {
            fill(x + i * kZoom, y + j * kZoom, kZoom, kZoom, kInk);
          }
        }
      }
      x += kGlyph * kZoom;
    }
  }

  std::string png() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string bytes(size, '\0');
    const int done =
        png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr);
    if (done == 0) {
      throw RunError(std::string("cannot make the heat map's PNG: ") + image.message);
    }
    bytes.resize(size);
    return bytes;
  }

 private:
  int width_;
  int height_;
  std::vector<std::uint8_t> pixels_;
};

/// So many cells from one label to the next that labels of `room` pixels fit.
int label_step(int cell, int room) {
  int step = 1;
  while (cell * step < room) {
    step *= 2;
  }
  return step;
}

constexpr int kLeft = 56, kTop = 44, kMargin = 16, kText = 5 * kZoom;

void draw_axes(Picture& picture, const Info& info, int w, int h) {
  picture.write(kLeft + (w * info.experts - Picture::width_of("expert")) / 2, 8, "expert");
  const int every = label_step(w, Picture::width_of(std::to_string(info.experts)) + 10);
  for (int e = 0; e < info.experts; e += every) {
    const std::string text = std::to_string(e);
    picture.write(kLeft + w * e + (w - Picture::width_of(text)) / 2, kTop - kText - 6, text);
  }
  picture.write(kLeft - 8 - Picture::width_of("layer"), kTop - kText - 6, "layer");
  for (int l = 0; l < info.layers; l += label_step(h, kText + 4)) {
    const std::string text = std::to_string(l);
    picture.write(kLeft - 8 - Picture::width_of(text), kTop + h * l + (h - kText) / 2, text);
  }
}

void draw_scale(Picture& picture, int y) {
  constexpr int kWide = 12;
  for (int shade = -kShades; shade <= kShades; ++shade) {
    picture.fill(kLeft + kWide * (shade + kShades), y, kWide, kWide, colour_of(shade));
  }
  const std::array<std::string, 7> words{"1/8", "1/4", "1/2", "mean", "2", "4", "8"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const int middle = kLeft + kWide / 2 + kWide * static_cast<int>(i) * kShades / 3;
    picture.write(middle - Picture::width_of(words[i]) / 2, y + kWide + 6, words[i]);
  }
}

}  // namespace

std::string heat_map_png(const Summary& summary) {
  const Info& info = summary.info;
  const int w = std::clamp(1200 / info.experts, 1, 24);
  const int h = std::clamp(700 / info.layers, 2, 24);
  const int scale = 12 * (2 * kShades + 1);
  const int below = kTop + h * info.layers + kMargin;
  Picture picture(kLeft + std::max(w * info.experts, scale) + kMargin, below + 12 + 6 + kText + 8);
  for (const LayerSummary& layer : summary.layers) {
    for (std::size_t e = 0; e < layer.heat.size(); ++e) {
      picture.fill(kLeft + w * static_cast<int>(e), kTop + h * layer.layer, w, h,
                   colour_of(shade_of(layer.heat[e])));
    }
  }
  draw_axes(picture, info, w, h);
  draw_scale(picture, below);
  return picture.png();
}

}  // namespace lrmoe::trace
