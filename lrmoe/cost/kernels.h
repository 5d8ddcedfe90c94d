// What a rank's kernels take: grouped GEMMs over its experts, and passes over
// memory (docs/clock.md).
#pragma once

#include <cstdint>
#include <span>

#include "lrmoe/cost/profile.h"
#include "lrmoe/cost/shape.h"

namespace lrmoe::cost {

/// The experts' GEMMs of one pass over one layer. FLOPs per pair: forward 6dn;
/// backward 12dn (2dn for r, 2dn for dWd, 4dn for dWg and dWu, 4dn for dx), and
/// 4dn more where g and u are computed again.
enum class Pass : std::uint8_t { forward, backward, backward_recompute };

double flops_per_pair(Pass pass, const Shape& shape);

/// Bytes of weights and weight gradients that an expert with any rows moves:
/// forward 3dn; backward 3dn read, and 3dn of gradients read and written;
/// 2dn more where g and u are computed again.
double weight_bytes(Pass pass, const Shape& shape);

/// Bytes of activations that the GEMMs read and write per pair: forward 2d + 3n
/// elements, backward 4d + 6n, with recomputing d + 2n more.
double activation_bytes(Pass pass, const Shape& shape);

/// Seconds of the grouped GEMMs: each expert takes the longer of its FLOPs, at
/// the efficiency of its rows, and its bytes. `rows` are multiplied by `scale`.
/// `again`: of a backward pass, each expert's rows for which g and u are made again, or
/// empty for none.
double gemm_seconds(Pass pass, std::span<const std::int32_t> rows, double scale,
                    const Profile& profile, const Shape& shape,
                    std::span<const std::int32_t> again = {});

/// Seconds of a kernel that reads and writes so many bytes; 0 for none.
double memory_seconds(double bytes, const Profile& profile);

}  // namespace lrmoe::cost
