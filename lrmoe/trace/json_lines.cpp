#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lrmoe/base/names.h"
#include "lrmoe/trace/rows.h"

namespace lrmoe::trace {
namespace {

using Json = nlohmann::json;

const std::vector<std::string>& keys() {
  static const std::vector<std::string> all{"step",  "layer",  "token", "experts",
                                            "gates", "source", "scores"};
  return all;
}

std::string shown(const Json& json) {
  return one_line(json.dump(-1, ' ', true, Json::error_handler_t::replace), 60);
}

std::int64_t whole(const Json& json, const std::string& where, const std::string& key) {
  const bool fits = json.is_number_integer() &&
                    !(json.is_number_unsigned() &&
                      json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
  if (!fits) {
    throw InputError(where + key + " = " + shown(json) + "; it takes a whole number");
  }
  return json.get<std::int64_t>();
}

std::int32_t narrow(const Json& json, const std::string& where, const std::string& key) {
  const std::int64_t value = whole(json, where, key);
  if (value < std::numeric_limits<std::int32_t>::min() ||
      value > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(where + key + " = " + std::to_string(value) + " is beyond any rank or expert");
  }
  return static_cast<std::int32_t>(value);
}

const Json& list(const Json& json, const std::string& where, const std::string& key) {
  if (!json.is_array()) {
    throw InputError(where + key + " = " + shown(json) + "; it takes a list of numbers");
  }
  return json;
}

std::vector<float> numbers(const Json& json, const std::string& where, const std::string& key) {
  std::vector<float> values;
  for (const Json& item : list(json, where, key)) {
    if (!item.is_number()) {
      throw InputError(where + key + " holds " + shown(item) + "; it takes numbers");
    }
    const double value = item.get<double>();
    // A double beyond the floats: the cast would not be defined.
    const bool fits =
        value <= std::numeric_limits<float>::max() && value >= -std::numeric_limits<float>::max();
    if (!fits) {
      throw InputError(where + key + " holds " + shown(item) + ", which is too large");
    }
    values.push_back(static_cast<float>(value));
  }
  return values;
}

Json parse_line(std::string_view line, const std::string& where) {
  // Depth is cut off at the parse: a line has an object with lists of numbers.
  int deepest = 0;
  bool twice = false;
  std::vector<std::string> seen;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deepest = std::max(deepest, depth);
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto key = parsed.get<std::string>();
      twice = twice || std::find(seen.begin(), seen.end(), key) != seen.end();
      if (seen.size() < 16) {
        seen.push_back(key);
      }
    }
    return depth <= 3;
  };
  Json json;
  try {
    json = Json::parse(line.begin(), line.end(), watch);
  } catch (const Json::exception& error) {
    // The library counts lines too; ours is the one that matters.
    std::string message = error.what();
    const std::size_t column = message.find("column ");
    throw InputError(where + "not JSON: " +
                     one_line(column == std::string::npos ? message : message.substr(column)));
  }
  if (!json.is_object()) {
    throw InputError(where + "no JSON object; it takes " +
                     R"({"layer":..,"token":..,"experts":[..],"gates":[..]})");
  }
  if (twice || deepest > 3) {
    throw InputError(where + (twice ? "a key stands twice" : "lists within lists"));
  }
  return json;
}

Row parse_row(std::string_view line, const std::string& where) {
  const Json json = parse_line(line, where);
  for (const char* key : {"layer", "token", "experts", "gates"}) {
    if (!json.contains(key)) {
      throw InputError(where + "no " + key + "; it takes layer, token, experts and gates");
    }
  }
  Row row;
  for (const auto& [key, value] : json.items()) {
    if (key == "step") {
      row.step = whole(value, where, key);
    } else if (key == "layer") {
      row.layer = whole(value, where, key);
    } else if (key == "token") {
      row.token = whole(value, where, key);
    } else if (key == "source") {
      row.source = narrow(value, where, key);
    } else if (key == "gates") {
      row.gates = numbers(value, where, key);
    } else if (key == "scores") {
      row.scores = numbers(value, where, key);
    } else if (key == "experts") {
      for (const Json& item : list(value, where, key)) {
        row.experts.push_back(narrow(item, where, "experts: an item"));
      }
    } else {
      throw InputError(where + "unknown key " + quote(key) + suggestion(key, keys()));
    }
  }
  return row;
}

}  // namespace

Trace from_json_lines(std::string_view text, const std::string& name,
                      const ConvertOptions& options) {
  Rows rows(name, options);
  for_each_line(text, rows, [&](std::string_view line, std::int64_t number) {
    rows.add(parse_row(line, rows.at(number)), number);
  });
  return rows.finish();
}

}  // namespace lrmoe::trace
