// What a rank did in one MoE layer and micro-batch, in counts alone. The layer
// fills it in while it runs; the clock prices it, the metrics print it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lrmoe::cost {

/// Counts on one rank. [R] arrays are indexed by the other rank (itself
/// included: rows that stay at home). A row is one token on its way to one
/// rank; a pair is one (token, expert).
struct LayerWork {
  std::int64_t tokens = 0;                       // of this rank
  std::vector<std::int32_t> forward_rows;        // [R] rows sent by dispatch
  std::vector<std::int32_t> forward_pairs;       // [R] pairs sent by dispatch
  std::vector<std::int32_t> forward_gemm_rows;   // [instances here] rows per expert GEMM
  std::vector<std::int32_t> combine_rows;        // [R] rows that come back
  std::int64_t statistics_bytes = 0;             // of all this rank's pairs, with the combine
  std::vector<std::int32_t> backward_rows;       // [R] delta rows sent
  std::vector<std::int32_t> backward_pairs;      // [R] kept pairs sent
  std::vector<std::int32_t> backward_gemm_rows;  // [instances here]
  std::int64_t zero_pairs = 0;  // kept pairs that came here and were skipped: their delta is zero
  bool recompute = false;       // x travels again, g and u are computed again
  // Activation mode quota: what was not in the cache is done again. Empty: nothing.
  std::vector<std::int32_t> again_rows;       // [R] x rows sent again
  std::vector<std::int32_t> again_gemm_rows;  // [instances here] pairs whose g and u are made again
  std::int64_t cached_pairs = 0;              // here, whose x, g and u went to the cache
  std::int64_t chunks = 1;      // parts of the tokens in which both passes ran, one after the other
  std::int64_t plan_cells = 0;  // R * E where a planner split the demand; 0: nothing planned
  std::int64_t fetched_instances = 0;  // whose weights came within the step, before the GEMMs
  std::int64_t scored_pairs = 0;       // of this rank, scored and selected among; 0: all kept
  std::int64_t forward_bytes = 0;      // sent to other ranks, as really sent
  std::int64_t backward_bytes = 0;
  // Sums over the kept pairs, each standing for 1/pi pairs: the variance that
  // sampling added and sum S^2 (docs/design.md, "Selection").
  double added_variance = 0;
  double total_variance = 0;
  // Wall seconds on this rank, where measured.
  double forward_seconds = 0;
  double backward_seconds = 0;
  double exchange_seconds = 0;  // within the two above: waiting and copying in collectives
  double plan_seconds = 0;      // within forward
  double select_seconds = 0;    // within backward
  // CPU seconds of this rank's thread, collectives left out; 0: not measured.
  double forward_cpu_seconds = 0;
  double backward_cpu_seconds = 0;

  bool operator==(const LayerWork&) const = default;
};

/// A rank's work as integers, for an all_gather: the first says how many there
/// are, and more may follow (ranks whose lengths differ pad with zeros).
std::vector<std::int64_t> pack(std::span<const LayerWork> work);

/// The reverse. InternalError where the integers are not such a packing.
std::vector<LayerWork> unpack(std::span<const std::int64_t> packed);

}  // namespace lrmoe::cost
