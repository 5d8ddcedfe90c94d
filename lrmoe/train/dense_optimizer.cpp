#include "lrmoe/train/dense_optimizer.h"

namespace lrmoe::train {

DenseOptimizer::DenseOptimizer(const std::vector<model::Parameter>& parameters)
    : parameters_(parameters) {
  std::int64_t elements = 0;
  for (const model::Parameter& parameter : parameters_) {
    offsets_.push_back(elements);
    elements += parameter.value.numel();
  }
  const at::ScalarType dtype =
      parameters_.empty() ? at::kFloat : parameters_.front().value.scalar_type();
  moment = at::zeros({elements}, dtype);
  square = at::zeros({elements}, dtype);
  gradient = at::zeros({elements}, dtype);
}

at::Tensor DenseOptimizer::part(const at::Tensor& flat, std::size_t i) const {
  const at::Tensor& value = parameters_[i].value;
  return flat.narrow(0, offsets_[i], value.numel()).view(value.sizes());
}

void DenseOptimizer::reduce(comm::Communicator& communicator) {
  if (parameters_.empty()) {
    return;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& own = parameters_[i].value.mutable_grad();
    const at::Tensor target = part(gradient, i);
    if (own.defined()) {
      target.copy_(own);
      own = at::Tensor();
    } else {
      target.zero_();
    }
  }
  const comm::DType dtype =
      gradient.scalar_type() == at::kDouble ? comm::DType::f64 : comm::DType::f32;
  communicator.all_reduce({gradient.data_ptr(), gradient.numel(), dtype}, comm::Reduce::sum);
}

double DenseOptimizer::gradient_square() const {
  return gradient.to(at::kDouble).square().sum().item<double>();
}

void DenseOptimizer::scale_gradient(double factor) {
  gradient.mul_(factor);
}

void DenseOptimizer::step(std::int64_t step, const optim::AdamWOptions& options) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    optim::AdamWOptions own = options;
    own.weight_decay = parameters_[i].decay ? options.weight_decay : 0.0;
    optim::adamw_step(parameters_[i].value, part(gradient, i), part(moment, i), part(square, i),
                      step, own);
  }
}

}  // namespace lrmoe::train
