// The types that a trace's tensors may have, and their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lrmoe::trace {

/// Ids as U8, U16 or I32; the type's largest value (I32: -1) becomes kNotRouted.
std::vector<std::int32_t> decode_ids(std::span<const std::byte> bytes, const std::string& dtype);
/// F16, BF16 or F32.
std::vector<float> decode_floats(std::span<const std::byte> bytes, const std::string& dtype);
std::vector<std::int32_t> decode_i32(std::span<const std::byte> bytes);

/// The smallest type whose largest value is no expert's id.
std::string id_type(int experts);
/// Experts that ids of this type can name.
std::int64_t most_experts(const std::string& dtype);

void encode_ids(std::span<const std::int32_t> ids, const std::string& dtype,
                std::vector<std::byte>& out);
void encode(std::span<const float> values, std::vector<std::byte>& out);
void encode(std::span<const std::int32_t> values, std::vector<std::byte>& out);

}  // namespace lrmoe::trace
