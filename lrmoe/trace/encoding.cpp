#include "lrmoe/trace/encoding.h"

#include <bit>
#include <cstring>
#include <limits>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));  // may be unaligned
  }
  return values;
}

template <class T>
std::vector<std::int32_t> small_ids(std::span<const std::byte> bytes) {
  std::vector<std::int32_t> ids;
  ids.reserve(bytes.size() / sizeof(T));
  for (const T id : values_of<T>(bytes)) {
    ids.push_back(id == std::numeric_limits<T>::max() ? kNotRouted : id);
  }
  return ids;
}

template <class T>
void encode_as(std::span<const std::int32_t> ids, std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  out.resize(begin + ids.size() * sizeof(T));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const T id = ids[i] == kNotRouted ? std::numeric_limits<T>::max() : static_cast<T>(ids[i]);
    std::memcpy(out.data() + begin + i * sizeof(T), &id, sizeof(T));
  }
}

void append(const void* data, std::size_t size, std::vector<std::byte>& out) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + size);
}

float from_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

std::vector<std::int32_t> decode_ids(std::span<const std::byte> bytes, const std::string& dtype) {
  if (dtype == "U8") {
    return small_ids<std::uint8_t>(bytes);
  }
  return dtype == "U16" ? small_ids<std::uint16_t>(bytes) : values_of<std::int32_t>(bytes);
}

std::vector<float> decode_floats(std::span<const std::byte> bytes, const std::string& dtype) {
  if (dtype == "F32") {
    return values_of<float>(bytes);
  }
  std::vector<float> values;
  values.reserve(bytes.size() / 2);
  for (const std::uint16_t half : values_of<std::uint16_t>(bytes)) {
    values.push_back(dtype == "BF16" ? std::bit_cast<float>(std::uint32_t{half} << 16)
                                     : from_f16(half));
  }
  return values;
}

std::vector<std::int32_t> decode_i32(std::span<const std::byte> bytes) {
  return values_of<std::int32_t>(bytes);
}

std::string id_type(int experts) {
  return experts <= 255 ? "U8" : experts <= 65535 ? "U16" : "I32";
}

std::int64_t most_experts(const std::string& dtype) {
  return dtype == "U8" ? 255 : dtype == "U16" ? 65535 : std::numeric_limits<std::int32_t>::max();
}

void encode_ids(std::span<const std::int32_t> ids, const std::string& dtype,
                std::vector<std::byte>& out) {
  if (dtype == "U8") {
    encode_as<std::uint8_t>(ids, out);
  } else if (dtype == "U16") {
    encode_as<std::uint16_t>(ids, out);
  } else {
    encode(ids, out);
  }
}

void encode(std::span<const float> values, std::vector<std::byte>& out) {
  append(values.data(), values.size_bytes(), out);
}

void encode(std::span<const std::int32_t> values, std::vector<std::byte>& out) {
  append(values.data(), values.size_bytes(), out);
}

}  // namespace lrmoe::trace
