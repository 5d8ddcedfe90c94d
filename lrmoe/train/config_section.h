// How the fields of a configuration's sections are described: for config_fields.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lrmoe/base/names.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {

/// Real numbers that a key takes.
struct Range {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  bool infinity = false;  // whether `inf` is a value

  bool holds(double x) const {
    if (std::isnan(x) || (std::isinf(x) && !infinity)) {
      return false;
    }
    return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
  }
  std::string text() const {
    std::string out = "a number " + std::string(low_open ? "above " : "at least ") + print(low);
    if (std::isfinite(high)) {
      out += std::string(high_open ? " and below " : " and at most ") + print(high);
    }
    return out + (infinity ? ", or inf" : "");
  }
  static std::string print(double x) {
    return x == std::floor(x) ? std::to_string(static_cast<std::int64_t>(x)) : print_value(x);
  }
};

/// Adds the keys of one section, each a member of the section's struct. `part`
/// leads from a Config to that struct: a member's pointer or a generic lambda.
template <class Part>
class Section {
 public:
  using S = std::remove_reference_t<std::invoke_result_t<Part, Config&>>;

  Section(std::vector<Field>& fields, std::string name, Part part)
      : fields_(fields), name_(std::move(name)), part_(part) {}

  template <class T>
  Field& integer(const std::string& key, T S::*member, std::int64_t low,
                 std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    if constexpr (sizeof(T) < sizeof(std::int64_t)) {
      high = std::min<std::int64_t>(high, std::numeric_limits<T>::max());
    }
    std::string expected = "a whole number, at least " + std::to_string(low);
    if (high < std::numeric_limits<std::int32_t>::max()) {
      expected += " and at most " + std::to_string(high);
    }
    return add(
        key, expected, member, [](const T& x) { return Value(static_cast<std::int64_t>(x)); },
        [low, high](T& x, const Value& value) {
          const auto* whole = std::get_if<std::int64_t>(&value);
          if (whole == nullptr || *whole < low || *whole > high) {
            return false;
          }
          x = static_cast<T>(*whole);
          return true;
        });
  }

  Field& real(const std::string& key, double S::*member, Range range) {
    return add(
        key, range.text(), member, [](double x) { return Value(x); },
        [range](double& x, const Value& value) {
          const auto* whole = std::get_if<std::int64_t>(&value);
          const auto* number = std::get_if<double>(&value);
          if (whole == nullptr && number == nullptr) {
            return false;
          }
          const double wanted = whole != nullptr ? static_cast<double>(*whole) : *number;
          x = range.holds(wanted) ? wanted : x;
          return range.holds(wanted);
        });
  }

  Field& flag(const std::string& key, bool S::*member) {
    return add(
        key, "true or false", member, [](bool x) { return Value(x); },
        [](bool& x, const Value& value) {
          const auto* wanted = std::get_if<bool>(&value);
          x = wanted != nullptr ? *wanted : x;
          return wanted != nullptr;
        });
  }

  Field& text(const std::string& key, std::string S::*member, const std::string& expected) {
    return add(
        key, expected, member, [](const std::string& x) { return Value(x); },
        [](std::string& x, const Value& value) {
          const auto* wanted = std::get_if<std::string>(&value);
          x = wanted != nullptr ? *wanted : x;
          return wanted != nullptr;
        });
  }

  /// One of some named values.
  template <class T>
  Field& choice(const std::string& key, T S::*member,
                const std::vector<std::pair<std::string, T>>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : choices) {
      names.push_back(quote(name));
    }
    return add(
        key, join(names, " or "), member,
        [choices](const T& x) {
          for (const auto& [name, value] : choices) {
            if (value == x) {
              return Value(name);
            }
          }
          return Value();
        },
        [choices](T& x, const Value& value) {
          const auto* wanted = std::get_if<std::string>(&value);
          for (const auto& [name, choice_value] : choices) {
            if (wanted != nullptr && *wanted == name) {
              x = choice_value;
              return true;
            }
          }
          return false;
        });
  }

  Field& list(const std::string& key, std::vector<int> S::*member, std::int64_t low,
              std::int64_t high) {
    return add(
        key, "a list of whole numbers from " + std::to_string(low), member,
        [](const std::vector<int>& x) {
          return Value(std::vector<std::int64_t>(x.begin(), x.end()));
        },
        [low, high](std::vector<int>& x, const Value& value) {
          const auto* wanted = std::get_if<std::vector<std::int64_t>>(&value);
          if (wanted == nullptr) {
            return false;
          }
          for (const std::int64_t item : *wanted) {
            if (item < low || item > high) {
              return false;
            }
          }
          x.assign(wanted->begin(), wanted->end());
          return true;
        });
  }

  /// Names; one alone may stand without brackets.
  Field& names(const std::string& key, std::vector<std::string> S::*member) {
    return add(
        key, "a list of names, in quotes", member,
        [](const std::vector<std::string>& x) { return Value(x); },
        [](std::vector<std::string>& x, const Value& value) {
          const auto* list = std::get_if<std::vector<std::string>>(&value);
          const auto* one = std::get_if<std::string>(&value);
          const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value);
          if (list != nullptr) {
            x = *list;
          } else if (one != nullptr) {
            x = {*one};
          } else if (numbers != nullptr && numbers->empty()) {
            x.clear();  // [] has no type
          } else {
            return false;
          }
          return true;
        });
  }

 private:
  template <class Member, class Get, class Set>
  Field& add(const std::string& key, const std::string& expected, Member S::*member, Get get,
             Set set) {
    Field field;
    field.section = name_;
    field.key = key;
    field.expected = expected;
    field.get = [part = part_, member, get](const Config& c) {
      return get(std::invoke(part, c).*member);
    };
    field.set = [part = part_, member, set](Config& c, const Value& value) {
      return set(std::invoke(part, c).*member, value);
    };
    return fields_.emplace_back(std::move(field));
  }

  std::vector<Field>& fields_;
  std::string name_;
  Part part_;
};

}  // namespace lrmoe::train
