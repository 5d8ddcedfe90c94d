// What each rank asked for, and whether the ranks agree. Used by engines that
// see all ranks' arguments before any data moves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

enum class Operation : std::uint8_t {
  barrier,
  all_gather,
  all_reduce,
  reduce_scatter,
  all_to_all_v,
  exchange
};
std::string_view name_of(Operation operation);
std::string_view name_of(Reduce op);

/// One rank's call; the fields that its operation does not have stay empty.
/// all_reduce has its data in both `in` and `out`.
struct Call {
  Operation operation = Operation::barrier;
  ConstBuffer in = {};
  Buffer out = {};
  Reduce reduce = Reduce::sum;
  std::span<const std::int64_t> send_counts = {};
  std::span<const std::int64_t> receive_counts = {};
  std::span<const Transfer> transfers = {};
};

/// A broken rule and the rank that is blamed for it.
struct Fault {
  int rank = 0;
  std::string message;
};

/// The first rule of communicator.h that the calls of all ranks break, or
/// nothing. Where ranks differ, rank 0 is taken to be right.
std::optional<Fault> check_calls(std::span<const Call> calls);

}  // namespace lrmoe::comm
