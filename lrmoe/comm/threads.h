// The `threads` engine: R ranks as R threads of this process. Ranks publish
// their buffers' addresses, meet, and copy straight from each other's memory.
// They sleep while they wait, so there may be many more ranks than cores.
#pragma once

#include <chrono>
#include <functional>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

struct ThreadOptions {
  /// How long an operation waits for the other ranks before it gives up with a
  /// RunError that names the ranks that did not come. The run then counts as
  /// failed on all ranks; run_ranks still waits for the bodies to return.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// Runs `body` once per rank, each in its own thread, and returns when all are
/// done. If ranks fail, the first failure counts: an InputError is rethrown as
/// it is, anything else as RunError("rank 3: <its message>"). A rank whose body
/// returns while others are in an operation, or enter one later, has failed. `size` 1 runs
/// the body in the calling thread.
void run_ranks(int size, const std::function<void(Communicator&)>& body,
               const ThreadOptions& options = {});

}  // namespace lrmoe::comm
