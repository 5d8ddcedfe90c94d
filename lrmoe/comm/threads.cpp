#include "lrmoe/comm/threads.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lrmoe/comm/call.h"
#include "lrmoe/comm/reduce.h"

namespace lrmoe::comm {
namespace {

/// Why no operation can succeed any more. The first reason stays.
struct Failure {
  int rank = 0;
  std::string message;
  bool disagreement = false;   // the ranks' calls did not fit together
  std::exception_ptr rethrow;  // set where run_ranks throws it as it is
};

/// Where the ranks meet. An operation is: meet (all calls are published and
/// agree), copy from the others' buffers, finish (all have copied). Ranks are
/// released by a failure only while they wait in meet, when nobody reads their
/// buffers; between meet and finish nothing can fail.
class World {
 public:
  World(int size, const ThreadOptions& options)
      : size_(size),
        // Far enough, and still a time point after it is added to now.
        timeout_(std::min<std::chrono::milliseconds>(options.timeout, std::chrono::hours(87600))),
        calls_(static_cast<std::size_t>(size)),
        arrived_(calls_.size(), false),
        departed_(calls_.size(), false) {}

  int size() const { return size_; }

  /// The rank's published call; valid between meet and finish.
  const Call& call(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }

  void meet(int rank, const Call& call) {
    std::unique_lock lock(mutex_);
    throw_if_failed(rank);
    if (const auto gone = std::ranges::find(departed_, true); gone != departed_.end()) {
      const auto missing = static_cast<int>(gone - departed_.begin());
      fail(returned_early(missing, rank, call.operation));
      throw_if_failed(rank);
    }
    calls_[static_cast<std::size_t>(rank)] = call;
    arrived_[static_cast<std::size_t>(rank)] = true;
    if (++waiting_ == size_) {
      if (auto fault = check_calls(calls_)) {
        fail({fault->rank, std::move(fault->message), true, nullptr});
        throw_if_failed(rank);
      }
      arrived_.assign(arrived_.size(), false);
      waiting_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    const std::uint64_t meeting = meetings_;
    const bool woken = changed_.wait_until(
        lock, deadline, [&] { return meetings_ != meeting || failure_.has_value(); });
    if (meetings_ != meeting) {
      return;
    }
    if (!woken) {
      const std::string message = did_not_come(call.operation);
      fail({rank, message, false, nullptr});
    }
    throw_if_failed(rank);
  }

  void finish() noexcept {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = finishes_;
    if (++finished_ == size_) {
      finished_ = 0;
      ++finishes_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return finishes_ != round; });
  }

  /// The rank's body has returned.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    departed_[static_cast<std::size_t>(rank)] = true;
    if (const auto waits = std::ranges::find(arrived_, true); waits != arrived_.end()) {
      const auto other = static_cast<int>(waits - arrived_.begin());
      fail(returned_early(rank, other, call(other).operation));
    }
  }

  /// The rank's body has thrown.
  void fail(int rank, std::string message, std::exception_ptr rethrow) {
    const std::lock_guard lock(mutex_);
    fail({rank, std::move(message), false, std::move(rethrow)});
  }

  /// For run_ranks, when all bodies are done.
  void throw_first_failure() {
    if (!failure_) {
      return;
    }
    if (failure_->rethrow) {
      std::rethrow_exception(failure_->rethrow);
    }
    throw RunError("rank " + std::to_string(failure_->rank) + ": " + failure_->message);
  }

 private:
  // The private members are called with the mutex held.

  void fail(Failure failure) {
    if (!failure_) {
      failure_ = std::move(failure);
      changed_.notify_all();
    }
  }

  void throw_if_failed(int rank) const {
    if (!failure_) {
      return;
    }
    if (failure_->disagreement) {
      throw InternalError(failure_->message);
    }
    if (failure_->rank == rank) {
      throw RunError(failure_->message);
    }
    throw PeerError(failure_->rank,
                    "rank " + std::to_string(failure_->rank) + " failed: " + failure_->message);
  }

  static Failure returned_early(int rank, int other, Operation operation) {
    return {rank,
            "returned while rank " + std::to_string(other) + " was in " +
                std::string(name_of(operation)),
            false, nullptr};
  }

  std::string did_not_come(Operation operation) const {
    std::string names;
    int missing = 0;
    for (int r = 0; r < size_; ++r) {
      if (!arrived_[static_cast<std::size_t>(r)]) {
        names += (missing++ == 0 ? "" : ", ") + std::to_string(r);
      }
    }
    return "[" + std::string(name_of(operation)) + "] " + (missing == 1 ? "rank " : "ranks ") +
           names + " did not come within " + std::to_string(timeout_.count()) + " ms";
  }

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<bool> arrived_;   // ranks that wait in the present meet
  std::vector<bool> departed_;  // ranks whose body has returned
  int waiting_ = 0;
  int finished_ = 0;
  std::uint64_t meetings_ = 0;
  std::uint64_t finishes_ = 0;
  std::optional<Failure> failure_;
};

/// A part may be in place already.
void copy_bytes(void* to, const void* from, std::size_t count) noexcept {
  if (count > 0 && to != from) {
    std::memcpy(to, from, count);
  }
}

std::byte* at(void* data, std::int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}
const std::byte* at(const void* data, std::int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}
std::size_t bytes_of(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, World& world)
      : rank_(rank),
        world_(world),
        inputs_(static_cast<std::size_t>(world.size())),
        next_(inputs_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }

  void barrier() override { world_.meet(rank_, {}); }

  void all_gather(ConstBuffer in, Buffer out) override {
    const Call call{.operation = Operation::all_gather, .in = in, .out = out};
    world_.meet(rank_, call);
    for (int r = 0; r < size(); ++r) {
      copy_bytes(at(out.data, r * in.count, out.dtype), world_.call(r).in.data,
                 bytes_of(in.count, in.dtype));
    }
    world_.finish();
  }

  void all_reduce(Buffer data, Reduce op) override {
    const Call call{.operation = Operation::all_reduce,
                    .in = {data.data, data.count, data.dtype},
                    .out = data,
                    .reduce = op};
    world_.meet(rank_, call);
    gather_inputs();
    if (bytes_of(data.count, data.dtype) <= kSmall) {
      // Every rank reduces everything: one meeting less.
      alignas(std::max_align_t) std::array<std::byte, kSmall> result;
      reduce_in_order(inputs_, 0, data.count, data.dtype, op, result.data());
      world_.finish();
      copy_bytes(data.data, result.data(), bytes_of(data.count, data.dtype));
      return;
    }
    // Rank r reduces slice r, which nobody else reads, in place; then all
    // collect the other slices.
    const std::int64_t begin = slice(rank_, data.count);
    reduce_in_order(inputs_, begin, slice(rank_ + 1, data.count) - begin, data.dtype, op,
                    at(data.data, begin, data.dtype));
    world_.finish();
    for (int r = 0; r < size(); ++r) {
      const std::int64_t from = slice(r, data.count);
      copy_bytes(at(data.data, from, data.dtype), at(world_.call(r).in.data, from, data.dtype),
                 bytes_of(slice(r + 1, data.count) - from, data.dtype));
    }
    world_.finish();
  }

  void reduce_scatter(ConstBuffer in, Buffer out, Reduce op) override {
    const Call call{.operation = Operation::reduce_scatter, .in = in, .out = out, .reduce = op};
    world_.meet(rank_, call);
    gather_inputs();
    reduce_in_order(inputs_, rank_ * out.count, out.count, out.dtype, op, out.data);
    world_.finish();
  }

  void all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                    std::span<const std::int64_t> receive_counts) override {
    const Call call{.operation = Operation::all_to_all_v,
                    .in = in,
                    .out = out,
                    .send_counts = send_counts,
                    .receive_counts = receive_counts};
    world_.meet(rank_, call);
    std::int64_t to = 0;
    for (int r = 0; r < size(); ++r) {
      const Call& source = world_.call(r);
      std::int64_t from = 0;
      for (int before = 0; before < rank_; ++before) {
        from += source.send_counts[static_cast<std::size_t>(before)];
      }
      const std::int64_t count = receive_counts[static_cast<std::size_t>(r)];
      copy_bytes(at(out.data, to, out.dtype), at(source.in.data, from, in.dtype),
                 bytes_of(count, in.dtype));
      to += count;
    }
    world_.finish();
  }

  void exchange(std::span<const Transfer> transfers) override {
    const Call call{.operation = Operation::exchange, .transfers = transfers};
    world_.meet(rank_, call);
    std::ranges::fill(next_, std::size_t{0});
    for (const Transfer& mine : transfers) {
      if (mine.kind == Transfer::Kind::receive) {
        const Buffer& sent = next_send(mine.peer);
        copy_bytes(mine.buffer.data, sent.data, bytes_of(sent.count, sent.dtype));
      }
    }
    world_.finish();
  }

 private:
  static constexpr std::size_t kSmall = 4096;  // bytes

  std::int64_t slice(int rank, std::int64_t count) const { return count * rank / size(); }

  void gather_inputs() noexcept {
    for (int r = 0; r < size(); ++r) {
      inputs_[static_cast<std::size_t>(r)] = world_.call(r).in.data;
    }
  }

  /// The next send of `peer` to this rank; check_calls has counted them.
  const Buffer& next_send(int peer) noexcept {
    const auto theirs = world_.call(peer).transfers;
    std::size_t& i = next_[static_cast<std::size_t>(peer)];
    while (theirs[i].kind != Transfer::Kind::send || theirs[i].peer != rank_) {
      ++i;
    }
    return theirs[i++].buffer;
  }

  const int rank_;
  World& world_;
  std::vector<const void*> inputs_;  // [R], of the present reduction
  std::vector<std::size_t> next_;    // [R], where next_send goes on
};

// Some libraries append a stack trace.
std::string first_line(const char* text) {
  const std::string_view whole(text);
  return std::string(whole.substr(0, whole.find('\n')));
}

void run_one(int rank, World& world, const std::function<void(Communicator&)>& body) {
  try {
    ThreadCommunicator communicator(rank, world);
    body(communicator);
    world.leave(rank);
  } catch (const InputError& error) {
    world.fail(rank, error.what(), std::current_exception());
  } catch (const std::exception& error) {
    world.fail(rank, first_line(error.what()), nullptr);
  } catch (...) {
    world.fail(rank, "threw something that is not a std::exception", nullptr);
  }
}

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body,
               const ThreadOptions& options) {
  LRMOE_ASSERT(size >= 1, "run_ranks needs a rank at least");
  World world(size, options);
  if (size == 1) {
    run_one(0, world, body);
    world.throw_first_failure();
    return;
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    try {
      threads.emplace_back(run_one, r, std::ref(world), std::cref(body));
    } catch (const std::exception& error) {
      world.fail(r, std::string("its thread did not start: ") + error.what(), nullptr);
      break;
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  world.throw_first_failure();
}

}  // namespace lrmoe::comm
