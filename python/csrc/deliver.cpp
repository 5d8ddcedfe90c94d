#include "python/csrc/deliver.h"

#include "lrmoe/base/error.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::python {
namespace {

using comm::Transfer;

struct Home {
  int rank = 0;
  int slot = 0;
};

std::vector<Home> homes(const LayerState& layer) {
  std::vector<Home> found(static_cast<std::size_t>(layer.experts()));
  const plan::Placement& owned = layer.owned();
  for (int r = 0; r < owned.rows; ++r) {
    for (int s = 0; s < owned.cols; ++s) {
      if (owned.at(r, s) >= 0) {
        found[static_cast<std::size_t>(owned.at(r, s))] = {r, s};
      }
    }
  }
  return found;
}

// Calls `visit` with (rank, slot, expert's home) of every used slot of all ranks.
template <class Visit>
void every_instance(const LayerState& layer, const Visit& visit) {
  const auto home = homes(layer);
  const plan::Placement& placement = layer.placement();
  for (int r = 0; r < placement.rows; ++r) {
    for (int s = 0; s < placement.cols; ++s) {
      if (placement.at(r, s) >= 0) {
        visit(r, s, home[static_cast<std::size_t>(placement.at(r, s))]);
      }
    }
  }
}

std::vector<std::int64_t> with_rows(const at::Tensor& tensor, int rows) {
  auto shape = tensor.sizes().vec();
  shape[0] = rows;
  return shape;
}

}  // namespace

at::Tensor deliver(LayerState& layer, const at::Tensor& owned) {
  const int me = layer.communicator().rank();
  const at::Tensor from = owned.detach().contiguous();
  at::Tensor slots = at::zeros(with_rows(from, layer.placement().cols), from.options());
  std::vector<Transfer> transfers;
  every_instance(layer, [&](int rank, int slot, Home home) {
    if (home.rank == me) {
      transfers.push_back({Transfer::Kind::send, rank, moe::buffer(from.select(0, home.slot))});
    }
    if (rank == me) {
      transfers.push_back({Transfer::Kind::receive, home.rank, moe::buffer(slots.select(0, slot))});
    }
  });
  layer.communicator().exchange(transfers);
  return slots;
}

at::Tensor collect(LayerState& layer, const at::Tensor& gradients) {
  const int me = layer.communicator().rank();
  const at::Tensor from = gradients.detach().contiguous();
  std::vector<Transfer> transfers;
  std::vector<std::pair<int, at::Tensor>> arrived;  // owned slot, one instance's gradient
  every_instance(layer, [&](int rank, int slot, Home home) {
    if (rank == me) {
      transfers.push_back({Transfer::Kind::send, home.rank, moe::buffer(from.select(0, slot))});
    }
    if (home.rank == me) {
      arrived.emplace_back(home.slot, at::empty_like(from.select(0, 0)));
      transfers.push_back({Transfer::Kind::receive, rank, moe::buffer(arrived.back().second)});
    }
  });
  layer.communicator().exchange(transfers);
  at::Tensor owned = at::zeros(with_rows(from, layer.owned().cols), from.options());
  for (const auto& [slot, gradient] : arrived) {
    owned.select(0, slot).add_(gradient);
  }
  return owned;
}

}  // namespace lrmoe::python
