// The `threads` engine: R ranks as R threads of this process.
#pragma once

#include <chrono>
#include <functional>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

struct ThreadOptions {
  /// How long an operation waits for the other ranks before it gives up with a
  /// RunError that names the ranks that did not come.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// Runs `body` once per rank, each in its own thread, and returns when all are
/// done. If ranks fail, the first failure counts: an InputError is rethrown as
/// it is, anything else as RunError("rank 3: <its message>"). `size` 1 runs the
/// body in the calling thread.
void run_ranks(int size, const std::function<void(Communicator&)>& body,
               const ThreadOptions& options = {});

}  // namespace lrmoe::comm
