#include "lrmoe/cost/rest.h"

#include <algorithm>
#include <array>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/cost/kernels.h"

namespace lrmoe::cost {
namespace {

/// A model whose heads are of one width and share keys and values in groups.
Rest grouped(int layers, double d, double heads, double kv_heads, double width, double shared,
             double dense, double vocabulary) {
  Rest rest;
  rest.layers = layers;
  rest.attention = 2 * d * (heads + kv_heads) * width;
  rest.queries = 2 * heads * width;
  rest.qkv = 2 * (heads + kv_heads) * width;
  rest.shared = 3 * d * shared;
  rest.dense = 3 * d * dense;
  rest.vocabulary = vocabulary;
  return rest;
}

/// Latent attention: queries and keys of 128 + 64, values of 128, 128 heads;
/// queries from 1536 latent numbers, keys and values from 512.
Rest deepseek_v3() {
  const double d = 7168, heads = 128;
  Rest rest = grouped(61, d, heads, heads, 128, 2048, 18432, 129280);
  rest.attention =
      d * 1536 + 1536 * heads * 192 + d * (512 + 64) + 512 * heads * 256 + heads * 128 * d;
  rest.queries = heads * (192 + 128);
  rest.qkv = heads * (192 + 192 + 128 + 128);
  return rest;
}

struct Entry {
  std::string_view name;
  Rest rest;
};

// num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads,
// head_dim, shared and dense MLP widths and vocab_size of each config.json.
const std::array<Entry, 5> kModels = {{
    {"qwen3-30b-a3b", grouped(48, 2048, 32, 4, 128, 0, 0, 151936)},
    {"glm-4.5-air", grouped(46, 4096, 96, 8, 128, 1408, 10944, 151552)},
    {"mixtral-8x7b", grouped(32, 4096, 32, 8, 128, 0, 0, 32000)},
    {"deepseek-v3", deepseek_v3()},
    {"olmoe-1b-7b", grouped(16, 2048, 16, 16, 128, 0, 0, 50304)},
}};

constexpr double kNormsAndSums = 12;  // elements of d that a layer's norms and sums pass over
constexpr double kLogit = 4;          // bytes
constexpr double kAdamElement = 4 + 3 * 8;

/// Seconds of a micro-batch of `t` tokens, forward; the backward pass is a
/// multiple of each part.
struct Parts {
  double projections = 0;
  double scores = 0;
  double passes = 0;
};

Parts price_forward(const RestWork& work, double t, const Rest& rest, const ClockOptions& options) {
  const Profile& profile = options.profile;
  const Shape& shape = options.shape;
  const auto d = static_cast<double>(shape.hidden);
  const auto w = static_cast<double>(shape.element_bytes);
  const double peak = profile.peak_flops * profile.efficiency(t);
  const auto gemm = [&](double parameters, double kernels) {
    if (parameters <= 0) {
      return 0.0;
    }
    return std::max(2 * t * parameters / peak, parameters * w / profile.memory_bandwidth) +
           kernels * profile.launch;
  };
  const double layers = work.moe_layers + work.dense_layers;
  const double share = layers / std::max(1, rest.layers);
  const double dense =
      rest.dense > 0 ? rest.dense : 3 * d * static_cast<double>(shape.top_k * shape.width);
  Parts parts;
  parts.projections = layers * gemm(rest.attention, 4) +
                      work.moe_layers * (gemm(shape.experts * d, 1) + gemm(rest.shared, 3)) +
                      work.dense_layers * gemm(dense, 3) + share * gemm(rest.vocabulary * d, 1);
  // A token attends to half of its sequence in the mean.
  const double flops = 2 * t * (work.sequence / 2.0) * rest.queries;
  parts.scores = layers * (flops / peak + profile.launch);
  parts.passes = layers * memory_seconds(t * (kNormsAndSums * d + 2 * rest.qkv) * w, profile) +
                 share * memory_seconds(t * (2 * d * w + 2 * rest.vocabulary * kLogit), profile);
  return parts;
}

double dense_parameters(const RestWork& work, const Rest& rest, const Shape& shape) {
  const auto d = static_cast<double>(shape.hidden);
  const double layers = work.moe_layers + work.dense_layers;
  const double share = layers / std::max(1, rest.layers);
  const double dense =
      rest.dense > 0 ? rest.dense : 3 * d * static_cast<double>(shape.top_k * shape.width);
  return layers * rest.attention + work.moe_layers * (shape.experts * d + rest.shared) +
         work.dense_layers * dense + share * 2 * rest.vocabulary * d;
}

}  // namespace

Rest find_rest(std::string_view name, const Rest& own) {
  if (name == "own") {
    return own;
  }
  for (const Entry& entry : kModels) {
    if (entry.name == name) {
      return entry.rest;
    }
  }
  throw InputError("[clock] shape: there is no model " + quote(name) +
                   "; there are: " + join(shape_names()));
}

RestSeconds price_rest(const RestWork& work, std::span<const std::int64_t> tokens, const Rest& rest,
                       const ClockOptions& options) {
  const Profile& profile = options.profile;
  LRMOE_ASSERT(!profile.measured, "a profile that measures prices no model");
  RestSeconds seconds;
  for (const std::int64_t count : tokens) {
    if (count == 0) {
      continue;
    }
    const Parts parts =
        price_forward(work, options.scale * static_cast<double>(count), rest, options);
    seconds.forward += parts.projections + parts.scores + parts.passes;
    // Twice the GEMMs; the scores are computed again besides.
    seconds.backward += 2 * parts.projections + 2.5 * parts.scores + 2 * parts.passes;
  }
  const auto w = static_cast<double>(options.shape.element_bytes);
  const double parameters = dense_parameters(work, rest, options.shape);
  if (work.ranks > 1) {
    const int node = options.ranks_per_node >= 0 ? options.ranks_per_node : profile.ranks_per_node;
    const Link& link = node > 0 && work.ranks > node ? profile.inter : profile.intra;
    seconds.update +=
        2 * (work.ranks - 1.0) / work.ranks * parameters * w / link.bandwidth + 2 * link.latency;
  }
  seconds.update += memory_seconds(parameters * (kAdamElement + w), profile);
  return seconds;
}

}  // namespace lrmoe::cost
