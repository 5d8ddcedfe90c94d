// Routing of a real model, where the shared data is there (formats in the project's docs).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "lrmoe/base/safetensors.h"
#include "lrmoe/plan/curve.h"

namespace lrmoe::plan::test {

/// A run of tokens of one layer: pairs per expert and the curves of their gates as scores.
struct TracePart {
  std::vector<std::int64_t> pairs;
  ScoreCurves curves;
};

/// All tokens of a layer, its first half and its second.
using TraceLayer = std::array<TracePart, 3>;

inline float from_half(std::uint16_t half) {
  const std::uint32_t exponent = (half >> 10U) & 31U;
  const std::uint32_t mantissa = half & 1023U;
  return exponent == 0 ? static_cast<float>(mantissa) * 0x1p-24F
                       : std::bit_cast<float>(((exponent + 112U) << 23U) | (mantissa << 13U));
}

inline TracePart trace_part(const safetensors::Tensor& ids, const safetensors::Tensor& gates,
                            int experts, std::int64_t begin, std::int64_t end) {
  TracePart part{std::vector<std::int64_t>(static_cast<std::size_t>(experts), 0),
                 ScoreCurves(experts)};
  ScoreHistogram scores(experts);
  const std::int64_t top_k = ids.shape[1];
  for (std::int64_t i = begin * top_k; i < end * top_k; ++i) {
    const auto e = std::to_integer<int>(ids.bytes[static_cast<std::size_t>(i)]);
    std::uint16_t gate = 0;
    std::memcpy(&gate, gates.bytes.data() + 2 * i, 2);
    ++part.pairs.at(static_cast<std::size_t>(e));
    scores.add(e, from_half(gate));
  }
  part.curves.update(scores);
  return part;
}

/// The layers of `esft-{name}.trace.safetensors`; empty where the file is not there.
inline std::vector<TraceLayer> shared_trace(const std::string& name, int experts = 64) {
  const std::filesystem::path path = std::filesystem::path(LRMOE_SOURCE_DIR) / "../shared/data" /
                                     ("esft-" + name + ".trace.safetensors");
  std::vector<TraceLayer> layers;
  if (!std::filesystem::exists(path)) {
    return layers;
  }
  const safetensors::Reader file(path);
  for (int l = 0;; ++l) {
    const std::string prefix = "s0.l" + std::to_string(l);
    const safetensors::Tensor* ids = file.find(prefix + ".ids");
    if (ids == nullptr) {
      return layers;
    }
    const safetensors::Tensor& gates = file.at(prefix + ".gates");
    const std::int64_t tokens = ids->shape[0];
    layers.push_back({trace_part(*ids, gates, experts, 0, tokens),
                      trace_part(*ids, gates, experts, 0, tokens / 2),
                      trace_part(*ids, gates, experts, tokens / 2, tokens)});
  }
}

}  // namespace lrmoe::plan::test
