#include "lrmoe/train/export_values.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "lrmoe/moe/exchange.h"

namespace lrmoe::train {

model::HfValues masters_of(const Replica& replica) {
  comm::Communicator& communicator = replica.communicator;
  model::HfValues values = model::weights_of(replica.model, communicator);
  values.expert = [&replica, &communicator](std::size_t i, int expert) {
    const at::NoGradGuard no_grad;
    const optim::ExpertOptimizer& optimizer = replica.experts[i];
    const optim::ShardMap& map = optimizer.map();
    std::vector<std::int64_t> send(static_cast<std::size_t>(communicator.size()), 0);
    std::vector<std::int64_t> receive(send.size(), 0);
    std::int64_t offset = 0;
    for (int e = 0; e < expert; ++e) {
      const auto [begin, end] = map.range(communicator.rank(), e);
      offset += end - begin;
    }
    const auto [begin, end] = map.range(communicator.rank(), expert);
    send[0] = end - begin;
    for (int r = 0; r < communicator.size() && communicator.rank() == 0; ++r) {
      const auto [b, e] = map.range(r, expert);
      receive[static_cast<std::size_t>(r)] = e - b;
    }
    // Ranges follow each other in order of rank.
    return moe::exchange_rows(communicator, optimizer.master.narrow(0, offset, end - begin), send,
                              receive);
  };
  return values;
}

}  // namespace lrmoe::train
