// A picture of a trace: layers by experts, each cell an expert's pairs over the mean
// of its layer. Shades go by powers of two, from an eighth to eight times the mean.
#pragma once

#include <filesystem>
#include <string>

#include "lrmoe/trace/summary.h"

namespace lrmoe::trace {

/// Shades from -kShades (an eighth of the mean, or less) over 0 (the mean) to kShades.
inline constexpr int kShades = 12;
int shade_of(double share_over_mean);

/// A page of its own, without scripts: an SVG with a tooltip per cell, light or dark as
/// the reader's system is.
std::string heat_map_html(const Summary& summary);

/// The bytes of a PNG with axes and a scale.
std::string heat_map_png(const Summary& summary);

/// Writes either by the name's end, .png or .html. InputError for any other name, and for
/// more than 4 million cells.
void write_heat_map(const std::filesystem::path& path, const Summary& summary);
/// The same errors, before the trace is read.
void check_heat_map(const std::filesystem::path& path, const Info& info);

}  // namespace lrmoe::trace
