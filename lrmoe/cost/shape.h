// Model shapes by name: the dimensions of the MoE layers that the clock and the
// memory estimate price. From the models' published configurations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lrmoe::cost {

struct Shape {
  std::string name = "own";
  std::int64_t hidden = 0;         // d
  std::int64_t width = 0;          // n, of a routed expert
  int experts = 0;                 // E
  int top_k = 0;                   // k
  int layers = 0;                  // MoE layers
  std::int64_t element_bytes = 2;  // of expert weights, their gradients and activations

  /// Elements of one expert: 3dn.
  double expert_elements() const {
    return 3.0 * static_cast<double>(hidden) * static_cast<double>(width);
  }
};

std::vector<std::string> shape_names();

/// The named model, or `own` for "own" (the model that is trained). InputError
/// for an unknown name; it lists those that exist.
Shape find_shape(std::string_view name, const Shape& own);

}  // namespace lrmoe::cost
