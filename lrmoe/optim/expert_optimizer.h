// The experts' optimizer, decoupled from placement (docs/design.md, "Optimizer"; SYMI,
// arXiv 2504.19925): master weights and moments of every expert are split evenly
// over all ranks and never move. Gradients of an expert's instances are reduced
// to the shards; updated weights go from the shards to the instances of the next
// placement. With `owned` (strategy `fixed`) they stay whole at the owner and
// nothing is sent.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/moe/expert_slots.h"
#include "lrmoe/optim/adamw.h"

namespace lrmoe::optim {

/// Which elements of each expert's flat parameters [gate_up 2nd | down dn] a
/// rank's optimizer holds.
struct ShardMap {
  int ranks = 1;
  int experts = 1;
  std::int64_t length = 0;  // elements of one expert: 3dn
  bool owned = false;       // whole experts at rank floor(e R / E)

  /// [begin, end) of expert e at rank r.
  std::pair<std::int64_t, std::int64_t> range(int rank, int expert) const;
  /// Elements at rank r, over all experts: the length of its flat tensors.
  std::int64_t elements(int rank) const;
};

class ExpertOptimizer {
 public:
  /// Collective only through later calls. Master weights start from
  /// `initial(e)` = the expert's flat parameters, called for every expert that
  /// has a part here; empty: from zeros, for `fill`. Experts that are not `trained` have no moments
  /// and no gradient: reduce, scale_gradient and step do nothing.
  ExpertOptimizer(const ShardMap& map, comm::Communicator& communicator,
                  const std::function<at::Tensor(int expert)>& initial, at::ScalarType master,
                  bool trained = true);

  /// Master weights from `values(e, begin, end)` = that range of the expert's flat
  /// parameters, called for every expert that has a part here.
  void fill(const std::function<at::Tensor(int, std::int64_t, std::int64_t)>& values);

  /// Sums the gradients of all instances into this rank's shards (in rank and
  /// slot order). Slots without a gradient count as zero.
  void reduce(const moe::ExpertSlots& slots);

  /// Sum of squares of this rank's reduced gradients (fp64).
  double gradient_square() const;
  void scale_gradient(double factor);
  void step(std::int64_t step, const AdamWOptions& options);

  /// Fills the slots of `next` on every rank from the shards and drops old gradients.
  void deliver(const plan::Placement& next, moe::ExpertSlots& slots);

  /// Since the last begin_step: bytes that reduce and deliver sent to other ranks,
  /// wall time of reduce, step and deliver.
  std::int64_t bytes_sent() const { return bytes_; }
  double seconds() const { return seconds_; }
  void begin_step();
  /// Takes the counts back to what they were: what an audit exchanges is not the step's.
  struct Counted {
    std::int64_t bytes = 0;
    double seconds = 0.0;
  };
  Counted counted() const { return {bytes_, seconds_}; }
  void count_again_from(const Counted& before) {
    bytes_ = before.bytes;
    seconds_ = before.seconds;
  }

  const ShardMap& map() const { return map_; }
  bool trained() const { return moment.defined(); }
  /// Flat tensors [elements(rank)], experts one after the other: for checkpoints. The
  /// last three are undefined where nothing is trained.
  at::Tensor master, moment, square, gradient;

 private:
  at::Tensor part(const at::Tensor& flat, int expert) const;
  at::Tensor gather_rows(const moe::ExpertSlots& slots, const std::vector<int>& mine);
  void count_bytes(const std::vector<std::int64_t>& elements, std::size_t element_size);

  ShardMap map_;
  comm::Communicator& comm_;
  std::int64_t bytes_ = 0;
  double seconds_ = 0.0;
};

}  // namespace lrmoe::optim
