#include "lrmoe/train/checkpoint_tensors.h"

#include <cstring>
#include <span>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/names.h"

namespace lrmoe::train {

namespace {

constexpr const char* kHashKey = "hash";

std::string dtype_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kLong:
      return "I64";
    default:
      throw InternalError("checkpoints hold fp32, fp64 and int64");
  }
}

std::string contents_hash(std::span<const safetensors::Tensor> tensors) {
  std::uint64_t h = 0;
  for (const safetensors::Tensor& tensor : tensors) {
    h = hash({h, hash(tensor.name), tensor.bytes.size()});
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof word) {
      word = 0;
      std::memcpy(&word, tensor.bytes.data() + i, std::min(sizeof word, tensor.bytes.size() - i));
      h = mix(h ^ word);
    }
  }
  return std::to_string(h);
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw InputError("checkpoint file " + quote(file) + " cannot be used: " + why +
                   "; remove its folder to go on from an older one");
}

std::string print_shape(at::IntArrayRef shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   safetensors::Metadata metadata) {
  std::vector<safetensors::Tensor> table;
  for (const auto& [name, tensor] : tensors) {
    LRMOE_ASSERT(tensor.is_contiguous(), name + " is not contiguous");
    table.push_back({name,
                     dtype_name(tensor),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  metadata[kHashKey] = contents_hash(table);
  safetensors::write(path, table, metadata);
}

TensorFile::TensorFile(const std::filesystem::path& path, const safetensors::Metadata& expected)
    : name_(path.string()), reader_(path) {
  const auto value = [&](const std::string& key) {
    const auto found = reader_.metadata().find(key);
    return found == reader_.metadata().end() ? std::string("missing") : found->second;
  };
  for (const auto& [key, wanted] : expected) {
    if (value(key) != wanted) {
      refuse(name_, "its " + key + " is " + one_line(value(key)) + ", not " + wanted);
    }
  }
  if (value(kHashKey) != contents_hash(reader_.tensors())) {
    refuse(name_, "it is damaged (its contents do not match its hash)");
  }
}

void TensorFile::check(const NamedTensor& target) const {
  const auto& [name, tensor] = target;
  const safetensors::Tensor& found = reader_.at(name);
  if (found.dtype != dtype_name(tensor) || tensor.sizes() != at::IntArrayRef(found.shape)) {
    refuse(name_, "its tensor " + quote(name) + " is " + found.dtype + " " +
                      print_shape(found.shape) + ", the configuration's " + dtype_name(tensor) +
                      " " + print_shape(tensor.sizes()));
  }
}

void TensorFile::copy(const std::string& name, std::int64_t begin, std::int64_t end,
                      const at::Tensor& target) const {
  const safetensors::Tensor& source = reader_.at(name);
  LRMOE_ASSERT(target.is_contiguous() && target.numel() == end - begin && begin >= 0 &&
                   end <= source.elements(),
               "a range of " + name + " does not fit");
  const std::size_t size = target.element_size();
  std::memcpy(target.data_ptr(), source.bytes.data() + static_cast<std::size_t>(begin) * size,
              static_cast<std::size_t>(end - begin) * size);
}

}  // namespace lrmoe::train
