// The files that `data.path` names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lrmoe::train {

/// The path itself, or a folder's regular files, at any depth, in the order of their
/// paths. InputError when it is empty, neither file nor folder, or a folder without files.
std::vector<std::filesystem::path> data_files(const std::string& path);

enum class DataKind { text, npy, bin, json_lines };

/// By the files' extensions, in whatever case; InputError when they are of several kinds.
DataKind data_kind(const std::string& path, const std::vector<std::filesystem::path>& files);

}  // namespace lrmoe::train
