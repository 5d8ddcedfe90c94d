#include "lrmoe/cost/shape.h"

#include <array>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cost {
namespace {

// hidden_size, moe_intermediate_size, routed experts, experts per token and MoE
// layers of each model's config.json.
const std::array<Shape, 5> kShapes = {{
    {"qwen3-30b-a3b", 2048, 768, 128, 8, 48},
    {"glm-4.5-air", 4096, 1408, 128, 8, 45},  // 46 layers, the first is dense
    {"mixtral-8x7b", 4096, 14336, 8, 2, 32},
    {"deepseek-v3", 7168, 2048, 256, 8, 58},  // 61 layers, the first three are dense
    {"olmoe-1b-7b", 2048, 1024, 64, 8, 16},
}};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names = {"own"};
  for (const Shape& shape : kShapes) {
    names.push_back(shape.name);
  }
  return names;
}

Shape find_shape(std::string_view name, const Shape& own) {
  if (name == "own") {
    return own;
  }
  for (const Shape& shape : kShapes) {
    if (shape.name == name) {
      return shape;
    }
  }
  throw InputError("[clock] shape: there is no model " + quote(name) +
                   "; there are: " + join(shape_names()));
}

}  // namespace lrmoe::cost
