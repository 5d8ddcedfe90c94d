#include "lrmoe/trace/heat_map.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::trace {

int shade_of(double share) {
  if (share <= 0.125) {
    return -kShades;
  }
  return static_cast<int>(std::lround(std::log2(std::min(share, 8.0)) * kShades / 3));
}

void check_heat_map(const std::filesystem::path& path, const Info& info) {
  const std::string end = path.extension().string();
  if (end != ".png" && end != ".html") {
    throw InputError("--heat-map " + quote(path.string()) +
                     ": its name must end with .png or .html");
  }
  constexpr std::int64_t kMost = 4'000'000;
  if (std::int64_t{info.layers} * info.experts > kMost) {
    throw InputError("--heat-map: " + std::to_string(info.layers) + " layers of " +
                     std::to_string(info.experts) + " experts are more than " +
                     std::to_string(kMost) + " cells");
  }
}

void write_heat_map(const std::filesystem::path& path, const Summary& summary) {
  check_heat_map(path, summary.info);
  write_file(path, path.extension() == ".png" ? heat_map_png(summary) : heat_map_html(summary));
}

}  // namespace lrmoe::trace
