// The `c10d` engine: ranks in processes of their own, over a torch process group
// (Gloo; any backend that takes CPU tensors).
//
// Unlike the `threads` engine it cannot see the other ranks' arguments, so ranks that
// disagree are not told apart from ranks that failed. Byte counts follow torch: an
// all_reduce of n bytes sends and receives about 2n per rank (all-to-all, sum in rank
// order, all-gather); the other operations send what their definitions say.
#pragma once

#include <memory>
#include <string>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

/// The ranks of the process group that torch knows by this name
/// (torch.distributed: ProcessGroup.group_name). Its time-out is that of every
/// operation. After one has failed, the message names the ranks that did not say
/// within some seconds that they are there too. InputError where there is no such
/// group, or this program was built without torch.
std::unique_ptr<Communicator> make_c10d(const std::string& group_name);

}  // namespace lrmoe::comm
