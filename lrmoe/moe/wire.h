// Exchanges of rows that are timed and counted.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/comm/communicator.h"
#include "lrmoe/moe/exchange.h"

namespace lrmoe::moe {

/// Wall and CPU time spent in collectives, over a pass.
struct ExchangeTime {
  double wall = 0.0;
  double cpu = 0.0;
};

class Wire {
 public:
  explicit Wire(comm::Communicator& communicator) : communicator_(communicator) {}

  /// Any collective.
  template <class Function>
  auto timed(const Function& function) {
    const Stopwatch wall;
    const CpuStopwatch cpu;
    auto out = function();
    time_.wall += wall.seconds();
    time_.cpu += cpu.seconds();
    return out;
  }

  /// exchange_rows (moe/exchange.h).
  at::Tensor send(const at::Tensor& rows, const std::vector<std::int64_t>& to,
                  const std::vector<std::int64_t>& from) {
    for (std::size_t r = 0; r < to.size(); ++r) {
      if (static_cast<int>(r) != communicator_.rank() && rows.size(0) > 0) {
        bytes_ += to[r] * static_cast<std::int64_t>(rows.nbytes()) / rows.size(0);
      }
    }
    return timed([&] { return exchange_rows(communicator_, rows, to, from); });
  }

  /// Bytes that `send` sent to other ranks.
  std::int64_t bytes() const { return bytes_; }
  const ExchangeTime& time() const { return time_; }

 private:
  comm::Communicator& communicator_;
  std::int64_t bytes_ = 0;
  ExchangeTime time_;
};

}  // namespace lrmoe::moe
