#include "lrmoe/comm/c10d.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <vector>

#include "lrmoe/base/names.h"
#include "lrmoe/comm/call.h"
#include "lrmoe/comm/reduce.h"

namespace lrmoe::comm {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// The bytes of a buffer as torch sees them; the memory stays the caller's.
at::Tensor bytes_of(const void* data, std::int64_t count, DType dtype) {
  // torch has no tensors of constant memory; what is sent is only read.
  return at::from_blob(const_cast<void*>(data), {count * static_cast<std::int64_t>(size_of(dtype))},
                       at::kByte);
}

// New each time: Gloo empties the split sizes that it is given.
std::vector<std::int64_t> in_bytes(std::span<const std::int64_t> counts, DType dtype) {
  std::vector<std::int64_t> sizes(counts.begin(), counts.end());
  for (auto& size : sizes) {
    size *= static_cast<std::int64_t>(size_of(dtype));
  }
  return sizes;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

class C10d final : public Communicator {
 public:
  C10d(Group group, std::string name) : group_(std::move(group)), name_(std::move(name)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  void barrier() override {
    guarded(Operation::barrier, [&] { group_->barrier()->wait(); });
  }

  void all_gather(ConstBuffer in, Buffer out) override {
    check({.operation = Operation::all_gather, .in = in, .out = out},
          out.count == in.count * size() && in.dtype == out.dtype);
    guarded(Operation::all_gather, [&] { gather(in, out); });
  }

  void all_reduce(Buffer data, Reduce op) override {
    check({.operation = Operation::all_reduce}, data.dtype != DType::u8);
    if (data.count == 0) {
      return;
    }
    guarded(Operation::all_reduce, [&] {
      // Rank r reduces slice r; slices of equal length, the last ones padded.
      const std::int64_t slice = (data.count + size() - 1) / size();
      const auto width = static_cast<std::int64_t>(size_of(data.dtype));
      fit(padded_, slice * size() * width);
      padded_.narrow(0, 0, data.count * width).copy_(bytes_of(data.data, data.count, data.dtype));
      padded_.narrow(0, data.count * width, (slice * size() - data.count) * width).zero_();
      fit(mine_, slice * width);
      reduce_slices({padded_.data_ptr(), slice * size(), data.dtype},
                    {mine_.data_ptr(), slice, data.dtype}, op);
      gather({mine_.data_ptr(), slice, data.dtype},
             {padded_.data_ptr(), slice * size(), data.dtype});
      bytes_of(data.data, data.count, data.dtype).copy_(padded_.narrow(0, 0, data.count * width));
    });
  }

  void reduce_scatter(ConstBuffer in, Buffer out, Reduce op) override {
    check({.operation = Operation::reduce_scatter},
          in.count == out.count * size() && in.dtype == out.dtype && in.dtype != DType::u8);
    guarded(Operation::reduce_scatter, [&] { reduce_slices(in, out, op); });
  }

  void all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                    std::span<const std::int64_t> receive_counts) override {
    const auto sum = [](std::span<const std::int64_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    check({.operation = Operation::all_to_all_v},
          in.dtype == out.dtype && sum(send_counts) == in.count &&
              sum(receive_counts) == out.count && static_cast<int>(send_counts.size()) == size() &&
              static_cast<int>(receive_counts.size()) == size());
    guarded(Operation::all_to_all_v, [&] {
      at::Tensor from = bytes_of(in.data, in.count, in.dtype);
      at::Tensor to = bytes_of(out.data, out.count, out.dtype);
      auto send = in_bytes(send_counts, in.dtype);
      auto receive = in_bytes(receive_counts, out.dtype);
      group_->all_to_all_single(to, from, receive, send)->wait();
    });
  }

  void exchange(std::span<const Transfer> transfers) override {
    guarded(Operation::exchange, [&] {
      std::vector<const Buffer*> to_self, from_self;
      std::vector<int> sent(static_cast<std::size_t>(size()), 0), received = sent;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (const Transfer& transfer : transfers) {
        const bool sends = transfer.kind == Transfer::Kind::send;
        const Buffer& buffer = transfer.buffer;
        if (transfer.peer == rank()) {
          (sends ? to_self : from_self).push_back(&buffer);
          continue;
        }
        // The k-th send meets the k-th receive, whatever order they arrive in.
        int& tag = (sends ? sent : received)[static_cast<std::size_t>(transfer.peer)];
        std::vector<at::Tensor> tensors{bytes_of(buffer.data, buffer.count, buffer.dtype)};
        works.push_back(sends ? group_->send(tensors, transfer.peer, tag)
                              : group_->recv(tensors, transfer.peer, tag));
        ++tag;
      }
      for (std::size_t i = 0; i < from_self.size() && i < to_self.size(); ++i) {
        bytes_of(from_self[i]->data, from_self[i]->count, from_self[i]->dtype)
            .copy_(bytes_of(to_self[i]->data, to_self[i]->count, to_self[i]->dtype));
      }
      for (const auto& work : works) {
        work->wait();
      }
    });
  }

 private:
  static void check(const Call& call, bool right) {
    LRMOE_ASSERT(right, "[" + std::string(name_of(call.operation)) +
                            "] the buffers' counts or dtypes do not fit together");
  }

  // Memory that stays: a fresh output costs its page faults each time.
  static void fit(at::Tensor& tensor, std::int64_t bytes) {
    if (!tensor.defined() || tensor.numel() != bytes) {
      tensor = at::empty({bytes}, at::kByte);
    }
  }

  void gather(ConstBuffer in, Buffer out) {
    at::Tensor from = bytes_of(in.data, in.count, in.dtype);
    at::Tensor to = bytes_of(out.data, out.count, out.dtype);
    group_->all_gather_single(to, from)->wait();
  }

  void reduce_slices(ConstBuffer in, Buffer out, Reduce op) {
    at::Tensor from = bytes_of(in.data, in.count, in.dtype);
    fit(slices_, from.numel());
    std::vector<std::int64_t> none_in, none_out;  // equal parts
    group_->all_to_all_single(slices_, from, none_out, none_in)->wait();
    std::vector<const void*> inputs;
    const auto part = static_cast<std::size_t>(out.count) * size_of(out.dtype);
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(static_cast<const std::byte*>(slices_.data_ptr()) +
                       static_cast<std::size_t>(r) * part);
    }
    reduce_in_order(inputs, 0, out.count, out.dtype, op, out.data);
  }

  void guarded(Operation operation, const std::function<void()>& body) {
    if (failed_) {
      throw PeerError(failed_->first, failed_->second);
    }
    try {
      body();
    } catch (const std::exception& error) {
      note_failure("[" + std::string(name_of(operation)) + "] ", first_line(error.what()));
      throw PeerError(failed_->first, failed_->second);
    }
  }

  // Every rank whose operation failed says so in the store; who does not is gone, or
  // is somewhere else.
  void note_failure(const std::string& where, const std::string& what) {
    std::string missing;
    int first = -1;
    try {
      const auto store = group_->getStore();
      const auto key = [&](int r) { return "lrmoe/" + name_ + "/failed/" + std::to_string(r); };
      store->set(key(rank()), std::vector<std::uint8_t>{1});
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      for (int r = 0; r < size(); ++r) {
        while (!store->check({key(r)}) && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (!store->check({key(r)})) {
          first = first < 0 ? r : first;
          missing += (missing.empty() ? "" : ", ") + std::to_string(r);
        }
      }
    } catch (const std::exception&) {
      missing = missing.empty() ? "that keeps the store" : missing;
    }
    const std::string blamed = missing.empty()
                                   ? "rank " + std::to_string(rank()) + " lost its connection"
                                   : "rank " + missing + " failed or does something else";
    failed_ = {first, where + blamed + ": " + what};
  }

  Group group_;
  std::string name_;
  at::Tensor padded_, mine_, slices_;
  std::optional<std::pair<int, std::string>> failed_;
};

}  // namespace

std::unique_ptr<Communicator> make_c10d(const std::string& group_name) {
  Group group;
  try {
    group = c10d::resolve_process_group(group_name);
  } catch (const std::exception& error) {
    throw InputError("[c10d] torch has no process group " + quote(group_name) + ": " +
                     first_line(error.what()));
  }
  return std::make_unique<C10d>(std::move(group), group_name);
}

}  // namespace lrmoe::comm
