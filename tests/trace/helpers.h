// Small traces and files for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lrmoe/base/safetensors.h"
#include "lrmoe/trace/trace.h"

namespace lrmoe::trace::testing_traces {

inline Info small_info(int steps = 1, int layers = 1) {
  Info info;
  info.model = "toy";
  info.source = "a test";
  info.experts = 4;
  info.top_k = 2;
  info.steps = steps;
  info.layers = layers;
  return info;
}

/// Three tokens of four experts; `shift` makes layers differ.
inline Routing small_routing(int shift = 0) {
  Routing routing;
  routing.tokens = 3;
  routing.top_k = 2;
  for (const int id : {0, 1, 2, 0, 3, 0}) {
    routing.ids.push_back((id + shift) % 4);
  }
  routing.gates = {0.75F, 0.25F, 0.5F, 0.5F, 1.0F, 0.0F};
  return routing;
}

/// A trace's file, tensor by tensor, so that each can be spoilt.
struct RawTrace {
  safetensors::Metadata metadata{{"format", "lrmoe-trace"}, {"version", "1"},
                                 {"num_experts", "4"},      {"top_k", "2"},
                                 {"num_steps", "1"},        {"num_layers", "1"}};
  struct Raw {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Raw> tensors;

  template <class T>
  void add(const std::string& name, const std::string& dtype,
           const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
    Raw raw{name, dtype, shape, std::vector<std::byte>(values.size() * sizeof(T))};
    std::ranges::copy(std::as_bytes(std::span(values)), raw.bytes.begin());
    tensors.push_back(raw);
  }
  void write(const std::filesystem::path& path) const {
    std::vector<safetensors::Tensor> all;
    for (const Raw& raw : tensors) {
      all.push_back({raw.name, raw.dtype, raw.shape, raw.bytes});
    }
    safetensors::write(path, all, metadata);
  }
};

}  // namespace lrmoe::trace::testing_traces
