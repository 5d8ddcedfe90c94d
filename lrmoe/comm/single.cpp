#include "lrmoe/comm/single.h"

#include <array>
#include <cstring>
#include <vector>

#include "lrmoe/comm/call.h"

namespace lrmoe::comm {
namespace {

void check(const Call& call) {
  const std::array calls{call};
  if (const auto fault = check_calls(calls)) {
    throw InternalError(fault->message);
  }
}

void copy(const void* from, void* to, std::int64_t count, DType dtype) {
  if (count > 0 && from != to) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(dtype));
  }
}

class Single final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}

  void all_gather(ConstBuffer in, Buffer out) override {
    check({.operation = Operation::all_gather, .in = in, .out = out});
    copy(in.data, out.data, in.count, in.dtype);
  }

  void all_reduce(Buffer data, Reduce op) override {
    check({.operation = Operation::all_reduce,
           .in = {data.data, data.count, data.dtype},
           .out = data,
           .reduce = op});
  }

  void reduce_scatter(ConstBuffer in, Buffer out, Reduce op) override {
    check({.operation = Operation::reduce_scatter, .in = in, .out = out, .reduce = op});
    copy(in.data, out.data, in.count, in.dtype);
  }

  void all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                    std::span<const std::int64_t> receive_counts) override {
    check({.operation = Operation::all_to_all_v,
           .in = in,
           .out = out,
           .send_counts = send_counts,
           .receive_counts = receive_counts});
    copy(in.data, out.data, in.count, in.dtype);
  }

  void exchange(std::span<const Transfer> transfers) override {
    check({.operation = Operation::exchange, .transfers = transfers});
    // The k-th send meets the k-th receive.
    std::vector<const Transfer*> sends, receives;
    for (const Transfer& transfer : transfers) {
      (transfer.kind == Transfer::Kind::send ? sends : receives).push_back(&transfer);
    }
    for (std::size_t i = 0; i < receives.size(); ++i) {
      const Buffer& from = sends[i]->buffer;
      copy(from.data, receives[i]->buffer.data, from.count, from.dtype);
    }
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single() {
  return std::make_unique<Single>();
}

}  // namespace lrmoe::comm
