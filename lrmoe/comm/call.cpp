#include "lrmoe/comm/call.h"

#include <functional>
#include <vector>

namespace lrmoe::comm {
namespace {

/// Collects the pieces of a message, "[operation] " first.
class Report {
 public:
  Report(int rank, Operation operation)
      : rank_(rank), text_("[" + std::string(name_of(operation)) + "] ") {}
  Report& operator<<(std::string_view s) {
    text_ += s;
    return *this;
  }
  Report& operator<<(std::int64_t n) {
    text_ += std::to_string(n);
    return *this;
  }
  operator std::optional<Fault>() const { return Fault{rank_, text_}; }

 private:
  int rank_;
  std::string text_;
};

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  const std::less<> before;
  return a_bytes > 0 && b_bytes > 0 && before(x, y + b_bytes) && before(y, x + a_bytes);
}

std::int64_t bytes(const auto& buffer) {
  return buffer.count * static_cast<std::int64_t>(size_of(buffer.dtype));
}

bool apart(const ConstBuffer& in, const Buffer& out) {
  return !overlap(in.data, bytes(in), out.data, bytes(out));
}

std::optional<Fault> check_buffer(int rank, Operation operation, const void* data,
                                  std::int64_t count) {
  if (count < 0) {
    return Report(rank, operation)
           << "rank " << rank << " gave a buffer of " << count << " elements";
  }
  if (count > 0 && data == nullptr) {
    return Report(rank, operation)
           << "rank " << rank << " gave " << count << " elements at a null pointer";
  }
  return std::nullopt;
}

/// The larger of in and out is `size` times the smaller, with one dtype.
std::optional<Fault> check_ratio(int rank, const Call& call, int size) {
  const bool gathers = call.operation == Operation::all_gather;
  const std::int64_t part = gathers ? call.in.count : call.out.count;
  const std::int64_t whole = gathers ? call.out.count : call.in.count;
  if (call.in.dtype != call.out.dtype) {
    return Report(rank, call.operation) << "rank " << rank << " reads " << name_of(call.in.dtype)
                                        << " and writes " << name_of(call.out.dtype);
  }
  if (whole != part * size) {
    return Report(rank, call.operation)
           << "rank " << rank << " gave " << whole << " and " << part
           << " elements; the first must be " << size << " times the second";
  }
  const std::int64_t offset = rank * part * static_cast<std::int64_t>(size_of(call.in.dtype));
  const auto* in = static_cast<const char*>(call.in.data);
  const auto* out = static_cast<const char*>(call.out.data);
  const bool in_place = gathers ? in == out + offset : out == in + offset;
  if (part > 0 && !in_place && !apart(call.in, call.out)) {
    return Report(rank, call.operation) << "rank " << rank << "'s input and output overlap";
  }
  return std::nullopt;
}

/// Counts of all_to_all_v: one per rank, none negative, and summing to the buffer.
std::optional<Fault> check_counts(int rank, const Call& call, int size, bool sends) {
  const auto counts = sends ? call.send_counts : call.receive_counts;
  const std::int64_t have = sends ? call.in.count : call.out.count;
  const std::string_view which = sends ? "send" : "receive";
  if (counts.size() != static_cast<std::size_t>(size)) {
    return Report(rank, call.operation)
           << "rank " << rank << " gave " << static_cast<std::int64_t>(counts.size()) << " "
           << which << " counts for " << size << " ranks";
  }
  std::int64_t sum = 0;
  for (const std::int64_t n : counts) {
    if (n < 0) {
      return Report(rank, call.operation)
             << "rank " << rank << " gave a " << which << " count of " << n;
    }
    sum += n;
  }
  if (sum != have) {
    return Report(rank, call.operation) << "rank " << rank << "'s " << which << " counts sum to "
                                        << sum << ", its buffer has " << have << " elements";
  }
  return std::nullopt;
}

/// One rank's call for itself.
std::optional<Fault> check_one(int rank, const Call& call, int size) {
  if (auto fault = check_buffer(rank, call.operation, call.in.data, call.in.count)) {
    return fault;
  }
  if (auto fault = check_buffer(rank, call.operation, call.out.data, call.out.count)) {
    return fault;
  }
  const bool reduces =
      call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  if (reduces && call.in.dtype == DType::u8) {
    return Report(rank, call.operation) << "rank " << rank << " wants to reduce u8";
  }
  switch (call.operation) {
    case Operation::barrier:
    case Operation::all_reduce:
      return std::nullopt;
    case Operation::all_gather:
    case Operation::reduce_scatter:
      return check_ratio(rank, call, size);
    case Operation::all_to_all_v:
      if (call.in.dtype != call.out.dtype) {
        return Report(rank, call.operation)
               << "rank " << rank << " sends " << name_of(call.in.dtype) << " and receives "
               << name_of(call.out.dtype);
      }
      if (auto fault = check_counts(rank, call, size, true)) {
        return fault;
      }
      if (auto fault = check_counts(rank, call, size, false)) {
        return fault;
      }
      if (!apart(call.in, call.out)) {
        return Report(rank, call.operation) << "rank " << rank << "'s input and output overlap";
      }
      return std::nullopt;
    case Operation::exchange:
      for (const Transfer& t : call.transfers) {
        if (t.peer < 0 || t.peer >= size) {
          return Report(rank, call.operation)
                 << "rank " << rank << " names peer " << t.peer << " of " << size;
        }
        if (auto fault = check_buffer(rank, call.operation, t.buffer.data, t.buffer.count)) {
          return fault;
        }
      }
      return std::nullopt;
  }
  return std::nullopt;
}

/// Two ranks' calls of one operation; all but the pairwise counts.
std::optional<Fault> check_agreement(int rank, const Call& first, const Call& call) {
  const std::string_view operation = name_of(call.operation);
  if (call.operation != first.operation) {
    return Report(rank, first.operation) << "rank " << rank << " called " << operation
                                         << " where rank 0 called " << name_of(first.operation);
  }
  if (call.operation == Operation::barrier || call.operation == Operation::exchange) {
    return std::nullopt;
  }
  if (call.in.dtype != first.in.dtype) {
    return Report(rank, call.operation) << "rank " << rank << " gave " << name_of(call.in.dtype)
                                        << " where rank 0 gave " << name_of(first.in.dtype);
  }
  if (call.operation == Operation::all_to_all_v) {
    return std::nullopt;
  }
  if (call.in.count != first.in.count) {
    return Report(rank, call.operation) << "rank " << rank << " gave " << call.in.count
                                        << " elements where rank 0 gave " << first.in.count;
  }
  if (call.reduce != first.reduce) {
    return Report(rank, call.operation) << "rank " << rank << " wants the " << name_of(call.reduce)
                                        << " where rank 0 wants the " << name_of(first.reduce);
  }
  return std::nullopt;
}

std::optional<Fault> check_all_to_all(std::span<const Call> calls) {
  for (std::size_t a = 0; a < calls.size(); ++a) {
    for (std::size_t b = 0; b < calls.size(); ++b) {
      const std::int64_t sent = calls[a].send_counts[b];
      const std::int64_t expected = calls[b].receive_counts[a];
      if (sent != expected) {
        return Report(static_cast<int>(a), Operation::all_to_all_v)
               << "rank " << static_cast<std::int64_t>(a) << " sends " << sent
               << " elements to rank " << static_cast<std::int64_t>(b) << ", which expects "
               << expected;
      }
    }
  }
  return std::nullopt;
}

std::optional<Fault> check_exchange(std::span<const Call> calls) {
  const std::size_t size = calls.size();
  // Sends and receives of every pair, in the order of the calls.
  std::vector<std::vector<const Buffer*>> sent(size * size);
  for (std::size_t a = 0; a < size; ++a) {
    for (const Transfer& t : calls[a].transfers) {
      if (t.kind == Transfer::Kind::send) {
        sent[a * size + static_cast<std::size_t>(t.peer)].push_back(&t.buffer);
      }
    }
  }
  std::vector<std::size_t> met(size * size, 0);
  for (std::size_t b = 0; b < size; ++b) {
    for (const Transfer& t : calls[b].transfers) {
      if (t.kind != Transfer::Kind::receive) {
        continue;
      }
      const std::size_t pair = static_cast<std::size_t>(t.peer) * size + b;
      const std::size_t k = met[pair]++;
      if (k >= sent[pair].size()) {
        continue;  // the numbers of messages are compared below
      }
      const Buffer& s = *sent[pair][k];
      if (s.count != t.buffer.count || s.dtype != t.buffer.dtype) {
        return Report(t.peer, Operation::exchange)
               << "message " << static_cast<std::int64_t>(k) << " from rank " << t.peer
               << " to rank " << static_cast<std::int64_t>(b) << " has " << s.count << " "
               << name_of(s.dtype) << ", the receiver expects " << t.buffer.count << " "
               << name_of(t.buffer.dtype);
      }
    }
  }
  for (std::size_t pair = 0; pair < size * size; ++pair) {
    if (met[pair] != sent[pair].size()) {
      const auto from = static_cast<std::int64_t>(pair / size);
      return Report(static_cast<int>(from), Operation::exchange)
             << "rank " << from << " sends " << static_cast<std::int64_t>(sent[pair].size())
             << " messages to rank " << static_cast<std::int64_t>(pair % size) << ", which expects "
             << static_cast<std::int64_t>(met[pair]);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::barrier:
      return "barrier";
    case Operation::all_gather:
      return "all_gather";
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_to_all_v:
      return "all_to_all_v";
    case Operation::exchange:
      return "exchange";
  }
  throw InternalError("name_of: no such operation");
}

std::string_view name_of(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return "sum";
    case Reduce::max:
      return "max";
    case Reduce::min:
      return "min";
  }
  throw InternalError("name_of: no such reduction");
}

std::optional<Fault> check_calls(std::span<const Call> calls) {
  const int size = static_cast<int>(calls.size());
  for (int r = 0; r < size; ++r) {
    const Call& call = calls[static_cast<std::size_t>(r)];
    if (auto fault = check_agreement(r, calls[0], call)) {
      return fault;
    }
    if (auto fault = check_one(r, call, size)) {
      return fault;
    }
  }
  if (calls[0].operation == Operation::all_to_all_v) {
    return check_all_to_all(calls);
  }
  if (calls[0].operation == Operation::exchange) {
    return check_exchange(calls);
  }
  return std::nullopt;
}

}  // namespace lrmoe::comm
