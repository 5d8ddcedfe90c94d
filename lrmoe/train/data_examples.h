// Sequences that are kept apart: rows of a two-dimensional .npy, lines of a .jsonl.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lrmoe/train/data.h"

namespace lrmoe::train {

/// Errors: see open_data.
std::unique_ptr<const Data> open_rows(const DataConfig& data,
                                      const std::vector<std::filesystem::path>& files, int sequence,
                                      int vocabulary);

/// A line too long for `sequence` is cut at its end; one whose trained tokens all go that
/// way is left out (Data::note says how many).
std::unique_ptr<const Data> open_json_lines(const DataConfig& data,
                                            const std::vector<std::filesystem::path>& files,
                                            int sequence, int vocabulary);

/// Element `index` of a random order of 0 .. count - 1 that depends on `key`.
std::int64_t shuffled(std::int64_t index, std::int64_t count, std::uint64_t key);

}  // namespace lrmoe::train
