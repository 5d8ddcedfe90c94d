#include "lrmoe/optim/expert_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <algorithm>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::optim {
namespace {

// [gate_up | down] of some slots as rows of one tensor: [slots, 3dn].
at::Tensor flat_rows(const at::Tensor& gate_up, const at::Tensor& down,
                     const std::vector<std::int64_t>& slots) {
  const at::Tensor index = at::tensor(slots, at::kLong);
  return at::cat(
      {gate_up.index_select(0, index).flatten(1), down.index_select(0, index).flatten(1)}, 1);
}

std::vector<std::int64_t> to_int64(const std::vector<int>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> ShardMap::range(int rank, int expert) const {
  if (owned) {
    const bool mine = static_cast<std::int64_t>(expert) * ranks / experts == rank;
    return {0, mine ? length : 0};
  }
  // Split as evenly as integers allow.
  return {length * rank / ranks, length * (rank + 1) / ranks};
}

std::int64_t ShardMap::elements(int rank) const {
  std::int64_t sum = 0;
  for (int e = 0; e < experts; ++e) {
    const auto [begin, end] = range(rank, e);
    sum += end - begin;
  }
  return sum;
}

ExpertOptimizer::ExpertOptimizer(const ShardMap& map, comm::Communicator& communicator,
                                 const std::function<at::Tensor(int expert)>& initial,
                                 at::ScalarType master_dtype, bool trained)
    : map_(map), comm_(communicator) {
  master = at::zeros({map.elements(comm_.rank())}, master_dtype);
  if (trained) {
    moment = at::zeros_like(master);
    square = at::zeros_like(master);
    gradient = at::zeros_like(master);
  }
  for (int e = 0; e < map.experts; ++e) {
    const auto [begin, end] = map.range(comm_.rank(), e);
    if (end > begin && initial) {
      part(master, e).copy_(initial(e).slice(0, begin, end));
    }
  }
}

void ExpertOptimizer::fill(
    const std::function<at::Tensor(int, std::int64_t, std::int64_t)>& values) {
  for (int e = 0; e < map_.experts; ++e) {
    const auto [begin, end] = map_.range(comm_.rank(), e);
    if (end > begin) {
      part(master, e).copy_(values(e, begin, end));
    }
  }
}

at::Tensor ExpertOptimizer::part(const at::Tensor& flat, int expert) const {
  const auto [begin, end] = map_.range(comm_.rank(), expert);
  const std::int64_t size = end - begin;
  if (!map_.owned) {
    return flat.narrow(0, size * expert, size);
  }
  std::int64_t offset = 0;
  for (int e = 0; e < expert; ++e) {
    const auto [b, n] = map_.range(comm_.rank(), e);
    offset += n - b;
  }
  return flat.narrow(0, offset, size);
}

void ExpertOptimizer::begin_step() {
  bytes_ = 0;
  seconds_ = 0.0;
}

void ExpertOptimizer::reduce(const moe::ExpertSlots& slots) {
  const Stopwatch watch;
  const at::NoGradGuard no_grad;
  if (!trained()) {
    return;
  }
  gradient.zero_();
  const auto grad_of = [](const at::Tensor& weight) {
    return weight.grad().defined() ? weight.grad() : at::zeros_like(weight);
  };
  const auto mine = slots.instances(comm_.rank());
  const at::Tensor rows = flat_rows(grad_of(slots.gate_up), grad_of(slots.down), to_int64(mine));

  if (map_.owned) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const int expert = slots.expert(mine[i]);
      LRMOE_ASSERT(map_.range(comm_.rank(), expert).second == map_.length,
                   "an owned optimizer met an expert that another rank owns");
      part(gradient, expert).copy_(rows.select(0, static_cast<std::int64_t>(i)));
    }
    seconds_ += watch.seconds();
    return;
  }

  std::vector<at::Tensor> pieces;
  std::vector<std::int64_t> send, receive;
  const auto [begin, end] = map_.range(comm_.rank(), 0);
  const std::int64_t width = end - begin;
  for (int r = 0; r < comm_.size(); ++r) {
    const auto [b, e] = map_.range(r, 0);
    pieces.push_back(rows.slice(1, b, e).reshape({-1}));
    send.push_back(pieces.back().numel());
    receive.push_back(width * static_cast<std::int64_t>(slots.instances(r).size()));
  }
  const at::Tensor arrived = moe::exchange_rows(comm_, at::cat(pieces), send, receive);
  count_bytes(send, arrived.element_size());
  std::int64_t offset = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    for (const int slot : slots.instances(r)) {
      part(gradient, slots.placement.at(r, slot)).add_(arrived.narrow(0, offset, width));
      offset += width;
    }
  }
  seconds_ += watch.seconds();
}

double ExpertOptimizer::gradient_square() const {
  return trained() ? gradient.to(at::kDouble).square().sum().item<double>() : 0.0;
}

void ExpertOptimizer::scale_gradient(double factor) {
  if (trained() && factor != 1.0) {
    gradient.mul_(factor);
  }
}

void ExpertOptimizer::step(std::int64_t step, const AdamWOptions& options) {
  const Stopwatch watch;
  if (trained()) {
    adamw_step(master, gradient, moment, square, step, options);
  }
  seconds_ += watch.seconds();
}

void ExpertOptimizer::deliver(const plan::Placement& next, moe::ExpertSlots& slots) {
  const Stopwatch watch;
  const at::NoGradGuard no_grad;
  slots.reset(next);
  const auto mine = slots.instances(comm_.rank());
  at::Tensor rows;  // [instances here, 3dn]
  if (map_.owned) {
    std::vector<at::Tensor> parts;
    for (const int slot : mine) {
      parts.push_back(part(master, slots.expert(slot)));
    }
    rows = parts.empty() ? at::empty({0, map_.length}, master.options()) : at::stack(parts);
  } else {
    rows = gather_rows(slots, mine);
  }
  const std::int64_t split = slots.gate_up.size(1) * slots.gate_up.size(2);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const at::Tensor row = rows.select(0, static_cast<std::int64_t>(i));
    slots.gate_up.select(0, mine[i]).flatten().copy_(row.slice(0, 0, split));
    slots.down.select(0, mine[i]).flatten().copy_(row.slice(0, split));
  }
  seconds_ += watch.seconds();
}

at::Tensor ExpertOptimizer::gather_rows(const moe::ExpertSlots& slots,
                                        const std::vector<int>& mine) {
  const at::Tensor working = master.to(slots.gate_up.scalar_type());
  std::vector<at::Tensor> pieces;
  std::vector<std::int64_t> send, receive;
  for (int r = 0; r < comm_.size(); ++r) {
    std::int64_t elements = 0;
    for (const int slot : slots.instances(r)) {
      pieces.push_back(part(working, slots.placement.at(r, slot)));
      elements += pieces.back().numel();
    }
    send.push_back(elements);
    const auto [b, e] = map_.range(r, 0);
    receive.push_back((e - b) * static_cast<std::int64_t>(mine.size()));
  }
  const at::Tensor arrived = moe::exchange_rows(comm_, at::cat(pieces), send, receive);
  count_bytes(send, arrived.element_size());
  std::vector<at::Tensor> columns;
  std::int64_t offset = 0;
  for (const auto elements : receive) {
    columns.push_back(
        arrived.narrow(0, offset, elements).view({static_cast<std::int64_t>(mine.size()), -1}));
    offset += elements;
  }
  return mine.empty() ? at::empty({0, map_.length}, working.options()) : at::cat(columns, 1);
}

void ExpertOptimizer::count_bytes(const std::vector<std::int64_t>& elements,
                                  std::size_t element_size) {
  for (int r = 0; r < comm_.size(); ++r) {
    if (r != comm_.rank()) {
      bytes_ += elements[static_cast<std::size_t>(r)] * static_cast<std::int64_t>(element_size);
    }
  }
}

}  // namespace lrmoe::optim
