#include "lrmoe/moe/exchange.h"

#include <numeric>
#include <string>

namespace lrmoe::moe {
namespace {

comm::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
      return comm::DType::u8;
    case at::kInt:
      return comm::DType::i32;
    case at::kLong:
      return comm::DType::i64;
    case at::kFloat:
      return comm::DType::f32;
    case at::kDouble:
      return comm::DType::f64;
    case at::kBFloat16:
      return comm::DType::bf16;
    default:
      throw InternalError(std::string("tensors of dtype ") + c10::toString(tensor.scalar_type()) +
                          " cannot be exchanged");
  }
}

}  // namespace

comm::Buffer buffer(const at::Tensor& tensor) {
  LRMOE_ASSERT(tensor.is_contiguous(), "only contiguous tensors can be exchanged");
  return {tensor.data_ptr(), tensor.numel(), dtype_of(tensor)};
}

at::Tensor exchange_rows(comm::Communicator& communicator, const at::Tensor& rows,
                         std::span<const std::int64_t> send,
                         std::span<const std::int64_t> receive) {
  std::vector<std::int64_t> shape = rows.sizes().vec();
  std::int64_t width = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) {
    width *= shape[i];
  }
  const auto in_elements = [width](std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> elements(counts.begin(), counts.end());
    for (auto& count : elements) {
      count *= width;
    }
    return elements;
  };
  shape[0] = std::accumulate(receive.begin(), receive.end(), std::int64_t{0});
  const at::Tensor in = rows.contiguous();
  if (communicator.size() == 1) {
    LRMOE_ASSERT(send[0] == shape[0] && in.size(0) == shape[0],
                 "[exchange_rows] the counts are not those of the rows");
    return in;  // nobody to send to
  }
  const at::Tensor out = at::empty(shape, rows.options());
  const comm::Buffer from = buffer(in);
  communicator.all_to_all_v({from.data, from.count, from.dtype}, in_elements(send), buffer(out),
                            in_elements(receive));
  return out;
}

std::vector<std::int64_t> exchange_counts(comm::Communicator& communicator,
                                          std::span<const std::int64_t> counts) {
  const std::vector<std::int32_t> mine(counts.begin(), counts.end());
  std::vector<std::int32_t> theirs(mine.size());
  const std::vector<std::int64_t> ones(mine.size(), 1);
  communicator.all_to_all_v(comm::view(std::span<const std::int32_t>(mine)), ones,
                            comm::view(std::span<std::int32_t>(theirs)), ones);
  return {theirs.begin(), theirs.end()};
}

}  // namespace lrmoe::moe
