// The Communicator: what ranks use to talk to each other. Typed byte buffers,
// no torch. Engines implement it: `threads` (comm/threads.h) runs all ranks in
// one process.
//
// Every operation is collective (all ranks call it, in the same order, with
// agreeing arguments) and blocking. Reductions add in rank order,
// ((r0 + r1) + r2) + ..., so results have the same bits on every rank and in
// every run. When a rank fails, every other rank's operation throws a PeerError
// that names the rank that failed; nobody waits for ever. Ranks that disagree
// (another operation, dtype, count or reduction) all get the same InternalError.
//
// Aliasing: while an operation runs, no other thread may write to its inputs or
// touch its outputs. A rank's output overlaps none of its inputs, but for two
// cases that save a copy: all_gather may find `in` at its place in `out`, and
// reduce_scatter may write `out` onto its own slice of `in`. Inputs may overlap
// each other, outputs may not. After a failure outputs hold anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lrmoe/base/error.h"

namespace lrmoe::comm {

enum class DType : std::uint8_t { u8, i32, i64, f32, f64, bf16 };
enum class Reduce : std::uint8_t { sum, max, min };

/// Bytes of one element.
std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);

/// `count` elements of `dtype`; the memory is the caller's.
struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::u8;
};
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::u8;
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::i32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return DType::i64;
  } else if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else {
    static_assert(std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>);
    return DType::u8;
  }
}
template <class T>
ConstBuffer view(std::span<const T> s) {
  return {s.data(), static_cast<std::int64_t>(s.size()), dtype_of<T>()};
}
template <class T>
Buffer view(std::span<T> s) requires(!std::is_const_v<T>) {
  return {s.data(), static_cast<std::int64_t>(s.size()), dtype_of<T>()};
}

/// One message of a point-to-point batch. `receive` writes to `buffer`, `send`
/// only reads it. The k-th send from a to b meets the k-th receive at b from a.
struct Transfer {
  enum class Kind : std::uint8_t { send, receive };
  Kind kind = Kind::send;
  int peer = 0;
  Buffer buffer;
};

/// Another rank failed; what() names it and repeats its message.
class PeerError : public RunError {
 public:
  PeerError(int rank, const std::string& message) : RunError(message), rank_(rank) {}
  /// The rank that failed first.
  int rank() const { return rank_; }

 private:
  int rank_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void barrier() = 0;

  /// out[r * in.count + i] = rank r's in[i]. out.count = size() * in.count.
  virtual void all_gather(ConstBuffer in, Buffer out) = 0;

  /// data = the reduction over ranks, element by element. Sums of bf16 are
  /// accumulated in f32 and rounded once. u8 cannot be reduced.
  virtual void all_reduce(Buffer data, Reduce op) = 0;

  /// Rank r gets elements [r * out.count, (r + 1) * out.count) of the reduction.
  /// in.count = size() * out.count.
  virtual void reduce_scatter(ConstBuffer in, Buffer out, Reduce op) = 0;

  /// Sends `send_counts[r]` elements to rank r and receives `receive_counts[r]`
  /// from it; both buffers hold the ranks' parts one after the other, in rank
  /// order, without gaps. Counts that do not agree between two ranks are an
  /// InternalError on both.
  virtual void all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                            std::span<const std::int64_t> receive_counts) = 0;

  /// A batch of sends and receives, all at once; a rank may take part with none.
  virtual void exchange(std::span<const Transfer> transfers) = 0;
};

}  // namespace lrmoe::comm
