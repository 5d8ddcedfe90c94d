// Collectives on tensors' rows.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::moe {

/// The Communicator's view of a contiguous CPU tensor.
comm::Buffer buffer(const at::Tensor& tensor);

/// All-to-all of rows: `rows` [sum send, ...] holds the rows for rank 0, then
/// rank 1, ...; the result [sum receive, ...] those from rank 0, then rank 1, ...
at::Tensor exchange_rows(comm::Communicator& communicator, const at::Tensor& rows,
                         std::span<const std::int64_t> send, std::span<const std::int64_t> receive);

/// One int32 to each rank and one from each.
std::vector<std::int64_t> exchange_counts(comm::Communicator& communicator,
                                          std::span<const std::int64_t> counts);

}  // namespace lrmoe::moe
