// The engine of one rank: every operation is a copy, and nobody is waited for.
#pragma once

#include <memory>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

/// A world of one rank that lives as long as its owner wants it (run_ranks of
/// comm/threads.h ends with its body). Wrong counts are an InternalError.
std::unique_ptr<Communicator> make_single();

}  // namespace lrmoe::comm
