// Which pairs the backward pass keeps: exactly as many in every cell as the plan
// says, and with which weight. Plain loops over host arrays, no torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/options.h"
#include "lrmoe/plan/types.h"

namespace lrmoe::plan {

/// Selects inside one cell. `scores`: one per pair of the cell, in order of
/// (token, j); NaN counts as 0. Returns the kept positions, ascending: exactly
/// `cell.keep`.
///  - sampled: pi_i = min(1, tau s_i), scaled so that the pi sum to the cell's
///    real quota; they lie on the cell's stretch of the plan's line, and a pair
///    is kept where it covers a point of u + integers (systematic sampling, so
///    the frequency of a pair over u is pi_i). Where the quota is at least the
///    number of scores above zero, those are kept at weight 1 and the first of
///    the others fill up.
///  - top: the largest scores, ties by order.
struct CellSelection {
  std::vector<std::int32_t> position;
  std::vector<float> weight;
};
CellSelection select_in_cell(const Cell& cell, std::int64_t draw, std::span<const float> scores,
                             SelectMode mode);

/// All cells of `source`. cell_of_pair: [T * k] index into `cells` (those of this
/// source), -1 for pairs outside (dropped). scores: [T * k]. Returns the weight
/// of every pair [T * k]: 0 where it is not kept, else 1/pi >= 1 (1 in mode top).
std::vector<float> select_pairs(std::span<const Cell> cells, std::int64_t draw,
                                std::span<const std::int32_t> cell_of_pair,
                                std::span<const float> scores, SelectMode mode);

/// The cells of one source: a contiguous part of the plan's.
std::span<const Cell> cells_of(const Plan& plan, int source);

}  // namespace lrmoe::plan
