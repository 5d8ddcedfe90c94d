#include "lrmoe/base/size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};
constexpr std::array<Unit, 11> kUnits{{{"", 1.0},
                                       {"b", 1.0},
                                       {"kib", 1024.0},
                                       {"mib", 1048576.0},
                                       {"gib", 1073741824.0},
                                       {"tib", 1099511627776.0},
                                       {"kb", 1e3},
                                       {"mb", 1e6},
                                       {"gb", 1e9},
                                       {"tb", 1e12},
                                       {"bytes", 1.0}}};

}  // namespace

std::int64_t parse_size(std::string_view text, std::string_view what) {
  const auto fail = [&](const std::string& why) -> InputError {
    return InputError(std::string(what) + " = " + quote(text) + why +
                      "; a size is a number and a unit, such as 4096, 512MiB or 2GB");
  };
  const std::string body = trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(body.data(), body.data() + body.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number)) {
    throw fail(" does not begin with a number");
  }
  std::string unit = trimmed({end, static_cast<std::size_t>(body.data() + body.size() - end)});
  for (char& c : unit) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const Unit& known : kUnits) {
    if (unit == known.name) {
      const double bytes = std::floor(number * known.bytes);
      if (number < 0 || bytes >= 9.2e18) {
        throw fail(" is out of range");
      }
      return static_cast<std::int64_t>(bytes);
    }
  }
  throw fail(" has a unit that is not known");
}

std::string print_size(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 48> text{};
  const double tenths = std::round(value * 10.0);
  const bool whole = std::fmod(tenths, 10.0) == 0.0;
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", tenths / 10.0,
                units[unit]);
  return text.data();
}

}  // namespace lrmoe
