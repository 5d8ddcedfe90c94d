#include "lrmoe/cost/profile.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/cost/profile_toml.h"

namespace lrmoe::cost {
namespace {

std::vector<Profile> read_profiles() {
  std::vector<Profile> all;
  for (const ProfileText& text : built_in_profiles()) {
    all.push_back(parse_profile(text.toml, text.name));
  }
  return all;
}

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = read_profiles();
  return all;
}

}  // namespace

double Profile::efficiency(double rows) const {
  Efficiency low;  // (0, 0)
  for (const Efficiency& high : gemm) {
    if (rows < high.rows) {
      const double along = (rows - low.rows) / (high.rows - low.rows);
      return low.fraction + along * (high.fraction - low.fraction);
    }
    low = high;
  }
  return low.fraction;
}

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const Profile& profile : profiles()) {
    names.push_back(profile.name);
  }
  return names;
}

bool is_profile_file(std::string_view name) {
  return name.ends_with(".toml");
}

Profile find_profile(std::string_view name) {
  for (const Profile& profile : profiles()) {
    if (profile.name == name) {
      return profile;
    }
  }
  if (is_profile_file(name)) {
    return load_profile(std::string(name));
  }
  throw InputError("[clock] profile: there is no profile " + quote(name) +
                   "; there are: " + join(profile_names()) + ", and your own, a .toml file");
}

}  // namespace lrmoe::cost
