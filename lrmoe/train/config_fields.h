// The one table of configuration keys: reading, `--set`, suggestions, checks of
// ranges and printing all work from it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lrmoe/train/config.h"

namespace lrmoe::train {

/// A key's value as TOML has it; monostate is a type that no key takes.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                           std::vector<std::int64_t>, std::vector<std::string>>;

struct Field {
  std::string section;
  std::string key;
  std::string expected;                            // "a whole number, at least 1"
  std::function<Value(const Config&)> get;         // monostate: not printed
  std::function<bool(Config&, const Value&)> set;  // false: wrong type or out of range
  bool before_others = false;    // sets defaults that other keys override (model.preset, .path)
  bool of_strategy = false;      // may stand in a strategy's specification
  bool fixed_on_resume = false;  // a run cannot go on with another value

  std::string name() const { return section + "." + key; }
};

/// All keys, in the order in which they are printed.
const std::vector<Field>& config_fields();
std::vector<std::string> section_names();
std::vector<std::string> key_names(std::string_view section);
/// Null when there is none.
const Field* find_field(std::string_view section, std::string_view key);

/// As TOML, on one line.
std::string print_value(const Value& value);

/// InputError, beginning with `where`, when `field` is of the model, which comes from
/// model.path, and `after` has another value than `before`, which the folder gave.
void check_contradiction(const Field& field, const Config& before, const Config& after,
                         const std::string& where);

/// The checks that concern several keys at once. InputError that begins with `where`.
void check_config(const Config& config, const std::string& where);

/// The first key that differs and that a resumed run may not change: "model.layers
/// = 4 (now 6)"; empty when there is none.
std::string changed_on_resume(const Config& before, const Config& now);

}  // namespace lrmoe::train
