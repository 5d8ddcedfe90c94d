// Routing as others write it down: JSON lines and text tables (docs/traces.md,
// "Converting").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

struct ConvertOptions {
  std::string model = {};  // what the trace says of itself
  int experts = 0;         // 0: the largest id, plus 1
  int hidden = 0;          // 0: not known
  int expert_width = 0;    // 0: not known
};

/// One object a line: {"layer":0,"token":0,"experts":[3,7],"gates":[0.6,0.4]}, and
/// where wanted "step", "source" and "scores". Lines may come in any order; steps,
/// layers and tokens count from 0 without gaps, and all tokens have as many experts.
/// Memory grows with the text alone. InputError of one line that names the line.
Trace from_json_lines(std::string_view text, const std::string& name,
                      const ConvertOptions& options = {});

/// One line a token: its k ids, then its k gates, or k times id:gate; between them
/// blanks, commas or semicolons. "# layer 3" or "# step 1 layer 3" begins a layer; other
/// lines that begin with # are comments, and so is a first line without any number.
/// Memory and errors as above.
Trace from_table(std::string_view text, const std::string& name,
                 const ConvertOptions& options = {});

/// A file in one of the two forms (told apart by a first "{"), or a folder of tables,
/// one a layer, in the order of the last number in their names.
Trace convert(const std::filesystem::path& path, const ConvertOptions& options = {});

}  // namespace lrmoe::trace
