// Routing traces (`lrmoe-trace`, docs/traces.md): which experts the tokens of
// every MoE layer were routed to, step by step, with what gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lrmoe::trace {

/// The id of a pair that was not routed.
inline constexpr std::int32_t kNotRouted = -1;
// More than any model or cluster has, and so little that no sum of bytes runs over.
inline constexpr int kMostExperts = 1 << 16;
inline constexpr int kMostLayers = 1024;
inline constexpr int kMostWidth = 1 << 16;  // of hidden and expert_width
inline constexpr int kMostRanks = 16384;

/// What a trace says of itself.
struct Info {
  std::string model;   // whose routing it is
  std::string source;  // where it comes from
  int experts = 0;
  int top_k = 0;
  int steps = 0;
  int layers = 0;          // MoE layers
  int hidden = 0;          // 0: not known
  int expert_width = 0;    // 0: not known
  int ranks = 0;           // that the tokens' sources refer to; 0: not known
  std::int64_t first = 1;  // the training step that step 0 is
  bool operator==(const Info&) const = default;
};

/// One MoE layer's routing in one step. Pairs lie token by token.
struct Routing {
  std::int64_t tokens = 0;
  int top_k = 0;
  std::vector<std::int32_t> ids;      // [tokens * top_k], distinct in a token, or kNotRouted
  std::vector<float> gates;           // [tokens * top_k], finite
  std::vector<std::int32_t> sources;  // [tokens] the rank a token comes from; empty: not given
  std::vector<float> scores;          // [tokens * top_k] a pair's contribution; empty: not given
  bool operator==(const Routing&) const = default;
};

/// A trace, in a file that is mapped into memory or in memory itself. Copies share it.
class Trace {
 public:
  /// Checks metadata, names, dtypes and shapes of the whole file; the values when a
  /// layer is read. InputError of one line that names the file, and the tensor.
  static Trace open(const std::filesystem::path& path);
  /// The same of a file's bytes, which outlive the trace; `name` stands in messages.
  static Trace parse(std::span<const std::byte> file, const std::string& name);
  /// In memory; `routing` lies step by step, layer by layer. Checked likewise.
  Trace(Info info, std::vector<Routing> routing, const std::string& name = "trace");

  const Info& info() const;
  /// Of the file, as messages show it.
  const std::string& name() const;

  /// Every value checked: ids in range and distinct in a token, gates and scores
  /// finite, sources in range.
  Routing read(int step, int layer) const;

  /// Without reading the values.
  std::int64_t tokens(int step, int layer) const;
  bool has_sources(int step, int layer) const;
  bool has_scores(int step, int layer) const;
  /// Of ids, gates, sources and scores, in the file's types.
  std::int64_t bytes() const;

 private:
  struct Impl;
  explicit Trace(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// "'x' is no trace: ..." where experts, top_k, steps or layers make no sense.
void check_info(const Info& info, const std::string& where);

/// Throws an InputError that begins with `where` unless the routing keeps every
/// rule above; `prefix` ("s0.l3.") stands before a tensor's name.
void check_routing(const Routing& routing, const Info& info, const std::string& where,
                   const std::string& prefix);

}  // namespace lrmoe::trace
