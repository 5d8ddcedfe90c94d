// Token ids as one long stream: .npy and .bin files one after the other, mapped into
// memory; and text, whose bytes are ids.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lrmoe/train/data.h"
#include "lrmoe/train/data_files.h"

namespace lrmoe::train {

/// `kind` npy (one dimension) or bin. Errors: see open_data.
std::unique_ptr<const Data> open_stream(const DataConfig& data, DataKind kind,
                                        const std::vector<std::filesystem::path>& files,
                                        int sequence, int vocabulary);

std::unique_ptr<const Data> open_text(const DataConfig& data, int sequence, int vocabulary);

}  // namespace lrmoe::train
