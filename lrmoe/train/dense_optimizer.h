// AdamW for the dense parameters, which every rank holds whole: gradients are
// summed over the ranks as one flat buffer, then all ranks take the same step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/model/transformer.h"
#include "lrmoe/optim/adamw.h"

namespace lrmoe::train {

class DenseOptimizer {
 public:
  /// Shares storage with the parameters, which are those that are trained; moments
  /// start at zero.
  explicit DenseOptimizer(const std::vector<model::Parameter>& parameters);

  /// gradient = the ranks' gradients added in rank order (one without a gradient
  /// counts as zero); the parameters' own are dropped. Collective.
  void reduce(comm::Communicator& communicator);

  /// Sum of squares of the reduced gradient, in fp64: the same on every rank.
  double gradient_square() const;
  void scale_gradient(double factor);
  /// `step` counts from 1. Weight decay for matrices only.
  void step(std::int64_t step, const optim::AdamWOptions& options);

  const std::vector<model::Parameter>& parameters() const { return parameters_; }
  /// Parameter i's part of a flat tensor, in the parameter's shape.
  at::Tensor part(const at::Tensor& flat, std::size_t i) const;

  /// Flat tensors over all parameters, in their order.
  at::Tensor moment, square, gradient;

 private:
  std::vector<model::Parameter> parameters_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace lrmoe::train
