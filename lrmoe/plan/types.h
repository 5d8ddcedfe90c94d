// The planner's words: plain tables, no torch, no threads. Ranks are called
// R, experts E, slots per rank S, experts per token k (docs/design.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lrmoe/plan/options.h"

namespace lrmoe::plan {

/// A row-major table.
template <class T>
struct Table {
  int rows = 0;
  int cols = 0;
  std::vector<T> values;  // [rows * cols]

  Table() = default;
  Table(int r, int c, T fill = T{})
      : rows(r), cols(c), values(static_cast<std::size_t>(r) * static_cast<std::size_t>(c), fill) {}
  T& at(int r, int c) { return values[index(r, c)]; }
  const T& at(int r, int c) const { return values[index(r, c)]; }
  std::span<T> row(int r) { return {values.data() + index(r, 0), static_cast<std::size_t>(cols)}; }
  std::span<const T> row(int r) const {
    return {values.data() + index(r, 0), static_cast<std::size_t>(cols)};
  }
  bool operator==(const Table&) const = default;

 private:
  std::size_t index(int r, int c) const {
    return static_cast<std::size_t>(r) * static_cast<std::size_t>(cols) +
           static_cast<std::size_t>(c);
  }
};

/// Pairs per (source rank, expert): [R, E]. Demand, quota and drops are such.
using Counts = Table<std::int32_t>;

struct Cluster {
  int ranks = 1;
  int experts = 1;
  int slots = 1;           // per rank; R * S >= E
  int top_k = 1;           // experts per token
  int ranks_per_node = 0;  // 0: all ranks in one node
  bool operator==(const Cluster&) const = default;
};

/// Which expert sits in which slot: [R, S], -1 = empty.
using Placement = Table<std::int32_t>;

/// `pairs` pairs of `expert` from `source` go to the instance on `rank`.
struct Route {
  std::int32_t source = 0;
  std::int32_t expert = 0;
  std::int32_t rank = 0;
  std::int32_t pairs = 0;
  bool operator==(const Route&) const = default;
};
/// Sorted by (source, expert, rank), each such triple at most once, pairs > 0.
using Split = std::vector<Route>;

/// Fixed point for real quotas: 1 pair = 2^kQuotaBits units.
inline constexpr int kQuotaBits = 24;

/// A cell of the selection (docs/design.md, "Selection"): the pairs among which a source
/// picks by itself. All cells lie on one line, in the order (rank, expert, source): so an
/// instance's cells lie side by side, and its count is its real quota rounded down or up.
struct Cell {
  std::int32_t source = 0;
  std::int32_t expert = 0;
  std::int32_t rank = -1;   // the forward instance (activation mode keep), or -1: any
  std::int32_t demand = 0;  // pairs in the cell
  std::int64_t quota = 0;   // real quota q_j <= demand, in 2^-kQuotaBits pairs
  std::int64_t begin = 0;   // C_{j-1}: where the cell's stretch of the line begins
  std::int32_t keep = 0;    // Q_j = floor(C_j + u) - floor(C_{j-1} + u)
  bool operator==(const Cell&) const = default;
};

/// Bytes on one rank for one layer (docs/design.md, "Memory").
struct MemoryTerms {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t activations = 0;
  std::int64_t buffers = 0;
  std::int64_t workspace = 0;
  std::int64_t total() const { return weights + gradients + activations + buffers + workspace; }
  bool operator==(const MemoryTerms&) const = default;
};

/// The plan of one layer and micro-batch. `forward` + `dropped` sums to the
/// demand and `backward` to the quota for every (source, expert).
struct Plan {
  std::string strategy;
  Cluster cluster;
  Counts demand;
  Counts quota;    // integer quotas of this draw; = demand - dropped when all is kept
  Counts dropped;  // forward overflow of strategies with a capacity
  Placement placement;
  Split forward;
  Split backward;
  bool keep_all = true;         // backward == forward and no cells
  bool score = false;           // pairs are scored though all are kept: the guard wants to know
  bool listed = false;          // the cells hold only the pairs that RouteInput::listed counts
  std::vector<Cell> cells;      // empty when keep_all
  std::int64_t draw = 0;        // u in [0, 1), in 2^-kQuotaBits
  double added_variance = 0.0;  // predicted from the score curves
  /// How the layer runs: what the forward pass leaves, and in how many chunks of
  /// tokens both passes go (fewer bytes at once, the same results).
  Activations activations = Activations::keep;
  int chunks = 1;
  std::vector<MemoryTerms> memory;  // [R], filled when a memory model was given
  std::vector<std::string> notes;   // what was given up, and why
};

}  // namespace lrmoe::plan
