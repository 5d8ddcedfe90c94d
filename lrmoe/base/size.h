// Sizes in bytes as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lrmoe {

/// "4096", "512MiB", "1.5 GiB", "2GB" (KiB, MiB, ... are powers of 1024, KB, MB,
/// ... of 1000; case does not count). InputError that begins with `what`.
std::int64_t parse_size(std::string_view text, std::string_view what);

/// "512 MiB", "1.5 GiB", "17 B": at most one decimal, in units of 1024.
std::string print_size(std::int64_t bytes);

}  // namespace lrmoe
