// Hardware profiles as TOML: the built-in ones, and a user's own (docs/clock.md,
// "Profiles").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/cost/profile.h"

namespace lrmoe::cost {

/// Reads a profile; `name` is its name and begins messages. Strict: InputError of
/// one line, with the line in the text, for what is not TOML, an unknown or missing
/// key (the nearest is suggested), a wrong type, a value out of range, and rows that
/// do not ascend.
Profile parse_profile(std::string_view toml, const std::string& name);

/// Of a file. InputError also where it cannot be read.
Profile load_profile(const std::string& path);

struct ProfileText {
  std::string name;
  std::string_view toml;
};

/// Those compiled in, from lrmoe/cost/profiles/.
std::vector<ProfileText> built_in_profiles();

}  // namespace lrmoe::cost
