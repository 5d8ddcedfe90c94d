#include "lrmoe/train/audit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lrmoe/base/stopwatch.h"

namespace lrmoe::train {

namespace {

// The tensors whose gradients a pass fills, in a fixed order.
std::vector<at::Tensor> leaves(Replica& replica) {
  std::vector<at::Tensor> found;
  for (const model::Parameter& parameter : replica.model.parameters()) {
    found.push_back(parameter.value);
  }
  for (const auto& layer : replica.model.moe_layers()) {
    found.push_back(layer->slots().gate_up);
    found.push_back(layer->slots().down);
  }
  return found;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& tensor : tensors) {
    gradients.push_back(tensor.grad());
  }
  return gradients;
}

void set_gradients(const std::vector<at::Tensor>& tensors,
                   const std::vector<at::Tensor>& gradients) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].mutable_grad() = gradients[i];
  }
}

// Sums over all ranks, in the optimizers' own buffers: the dense gradient whole on
// each rank, the experts' in shards. The next reduction overwrites them.
void reduce(Replica& replica) {
  replica.dense.reduce(replica.communicator);
  for (std::size_t i = 0; i < replica.experts.size(); ++i) {
    const optim::ExpertOptimizer::Counted before = replica.experts[i].counted();
    replica.experts[i].reduce(replica.model.moe_layers()[i]->slots());
    replica.experts[i].count_again_from(before);
  }
}

// What both figures are made of, in fp64.
struct Sums {
  double dot = 0;
  double own_square = 0;
  double all_square = 0;
  double difference_square = 0;

  void add(const at::Tensor& own, const at::Tensor& all) {
    const at::Tensor a = own.to(at::kDouble).flatten();
    const at::Tensor b = all.to(at::kDouble).flatten();
    dot += (a * b).sum().item<double>();
    own_square += a.square().sum().item<double>();
    all_square += b.square().sum().item<double>();
    difference_square += (a - b).square().sum().item<double>();
  }

  Agreement agreement() const {
    if (difference_square == 0) {
      return {1, 0};  // also where both are zero
    }
    // Not a number where one of them is zero: there is no angle, or no scale.
    return {dot / std::sqrt(own_square) / std::sqrt(all_square),
            std::sqrt(difference_square) / std::sqrt(all_square)};
  }
};

void sum_over_ranks(std::vector<Sums>& rows, comm::Communicator& communicator) {
  std::vector<double> values;
  for (const Sums& row : rows) {
    values.insert(values.end(), {row.dot, row.own_square, row.all_square, row.difference_square});
  }
  communicator.all_reduce(comm::view(std::span<double>(values)), comm::Reduce::sum);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
  }
}

// The block of a parameter "layers.N.rest", or -1.
int block_of(const std::string& parameter) {
  const std::string prefix = "layers.";
  return parameter.starts_with(prefix) ? std::stoi(parameter.substr(prefix.size())) : -1;
}

}  // namespace

Audit audit_gradients(Replica& replica, const std::function<void()>& keep_all_pass) {
  const Stopwatch watch;
  const std::vector<at::Tensor> tensors = leaves(replica);
  const std::vector<at::Tensor> held = gradients_of(tensors);
  set_gradients(tensors, std::vector<at::Tensor>(tensors.size()));
  keep_all_pass();
  reduce(replica);
  const at::Tensor all_dense = replica.dense.gradient.clone();
  std::vector<at::Tensor> all_experts;
  for (const optim::ExpertOptimizer& optimizer : replica.experts) {
    all_experts.push_back(optimizer.trained() ? optimizer.gradient.clone() : at::Tensor());
  }
  set_gradients(tensors, held);
  reduce(replica);
  set_gradients(tensors, held);  // the dense ones went with the reduction

  // Every rank has the whole dense gradient, and its shards of the experts'.
  Audit audit;
  Sums rest;
  for (const model::Parameter& parameter : replica.model.parameters()) {
    while (block_of(parameter.name) >= static_cast<int>(audit.layers.size())) {
      audit.layers.push_back({static_cast<int>(audit.layers.size()), {}, {}, {}});
    }
  }
  std::vector<Sums> routers(audit.layers.size()), dense(audit.layers.size());
  for (std::size_t i = 0; i < replica.dense.parameters().size(); ++i) {
    const std::string& name = replica.dense.parameters()[i].name;
    const int block = block_of(name);
    const auto at_block = static_cast<std::size_t>(std::max(block, 0));
    Sums& sums = block < 0 ? rest : name.ends_with(".router") ? routers[at_block] : dense[at_block];
    sums.add(replica.dense.part(replica.dense.gradient, i), replica.dense.part(all_dense, i));
  }
  std::vector<Sums> experts(replica.experts.size());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (replica.experts[i].trained()) {
      experts[i].add(replica.experts[i].gradient, all_experts[i]);
    }
  }
  sum_over_ranks(experts, replica.communicator);

  for (std::size_t l = 0; l < audit.layers.size(); ++l) {
    audit.layers[l].dense = dense[l].agreement();
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const auto l = static_cast<std::size_t>(replica.model.layer_of()[i]);
    if (replica.experts[i].trained()) {
      audit.layers[l].experts = experts[i].agreement();
    }
    audit.layers[l].router = routers[l].agreement();
  }
  audit.rest = rest.agreement();
  audit.seconds = watch.seconds();
  return audit;
}

std::string to_text(const Audit& audit) {
  const auto worst = [&](const char* name, auto part) {
    Agreement found{1, 0};
    for (const LayerAudit& layer : audit.layers) {
      if (const std::optional<Agreement> agreement = part(layer)) {
        found = {std::fmin(found.cosine, agreement->cosine),
                 std::fmax(found.relative_error, agreement->relative_error)};
      }
    }
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s %.4f, %.3f", name, found.cosine,
                  found.relative_error);
    return std::string(text.data());
  };
  return "gradients against keep-all (cosine, relative error; worst layer): " +
         worst("experts", [](const LayerAudit& l) { return l.experts; }) + "; " +
         worst("router", [](const LayerAudit& l) { return l.router; }) + "; " +
         worst("dense", [](const LayerAudit& l) { return std::optional(l.dense); });
}

}  // namespace lrmoe::train
