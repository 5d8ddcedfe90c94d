// Pass "cells": the cells of the selection on one line, and the integer counts
// that a draw gives them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/tables.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// How many of an expert's listed pairs at one source belong to its pairs number
/// [begin, end) of all: in proportion, exact in sum, at most end - begin.
constexpr std::int64_t listed_share(std::int64_t listed, std::int64_t all, std::int64_t begin,
                                    std::int64_t end) {
  return listed * end / all - listed * begin / all;
}

/// The routes with their listed pairs only. listed: [R, E], at most the routes' pairs.
Split listed_routes(const Split& forward, const Counts& listed);

/// Activation mode keep: a cell per forward route; the quota [E, R] of an
/// instance is shared by its sources in proportion to their pairs.
std::vector<Cell> cells_of_routes(const Split& forward, const Loads& quota);

/// Activation mode recompute: a cell per (source, expert), rank -1.
std::vector<Cell> cells_of_sources(const Counts& pairs, std::span<const std::int64_t> quota);

/// How many points of u + integers lie on [begin, end) of the line: floor(end + u) -
/// floor(begin + u).
constexpr std::int32_t points_between(std::int64_t begin, std::int64_t end, std::int64_t draw) {
  return static_cast<std::int32_t>(((end + draw) >> kQuotaBits) - ((begin + draw) >> kQuotaBits));
}

/// Lays the cells on the line, in the order (rank, expert, source), and counts the
/// points of u + integers that each covers: keep = floor(C_j + u) - floor(C_{j-1} + u).
/// The sum is exact, each count is its real quota rounded down or up and equals it in
/// the mean over u; and so are the counts of an instance and of a rank, since their
/// cells lie side by side.
void draw_counts(std::span<Cell> cells, std::int64_t draw);

/// u of a layer's selection, in 2^-kQuotaBits: the same on every rank, another one
/// for every seed, step, micro-batch and layer.
std::int64_t selection_draw(std::uint64_t seed, std::int64_t step, std::int64_t micro_batch,
                            int layer);

}  // namespace lrmoe::plan
