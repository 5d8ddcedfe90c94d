#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "lrmoe/base/names.h"
#include "lrmoe/trace/rows.h"

namespace lrmoe::trace {
namespace {

std::vector<std::string_view> fields_of(std::string_view line) {
  static constexpr std::string_view kBetween = " \t\r,;";
  std::vector<std::string_view> fields;
  std::size_t begin = line.find_first_not_of(kBetween);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(kBetween, begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBetween, end);
  }
  return fields;
}

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::int32_t expert_of(std::string_view field, const std::string& where) {
  std::int32_t id = 0;
  if (!parse(field, id)) {
    throw InputError(where + quote(field) + " is no expert's number");
  }
  return id;
}

float gate_of(std::string_view field, const std::string& where) {
  double gate = 0;
  const double most = std::numeric_limits<float>::max();
  if (!parse(field, gate) || !(gate <= most && gate >= -most)) {
    throw InputError(where + quote(field) + " is no gate (a finite number)");
  }
  return static_cast<float>(gate);
}

bool holds_a_number(const std::vector<std::string_view>& fields) {
  double ignored = 0;
  return std::any_of(fields.begin(), fields.end(), [&](std::string_view field) {
    return parse(field.substr(0, field.find(':')), ignored);
  });
}

void parse_token(const std::vector<std::string_view>& fields, const std::string& where, Row& row) {
  row.experts.clear();
  row.gates.clear();
  if (fields[0].find(':') != std::string_view::npos) {
    for (const std::string_view field : fields) {
      const std::size_t colon = field.find(':');
      if (colon == std::string_view::npos) {
        throw InputError(where + quote(field) + " is no id:gate, as the first of the line is");
      }
      row.experts.push_back(expert_of(field.substr(0, colon), where));
      row.gates.push_back(gate_of(field.substr(colon + 1), where));
    }
    return;
  }
  if (fields.size() % 2 != 0) {
    throw InputError(where + std::to_string(fields.size()) +
                     " numbers; it takes k experts and then k gates");
  }
  for (std::size_t i = 0; i < fields.size() / 2; ++i) {
    row.experts.push_back(expert_of(fields[i], where));
    row.gates.push_back(gate_of(fields[fields.size() / 2 + i], where));
  }
}

/// Where the tokens of a table go.
class Layers {
 public:
  Layers(Rows& rows, std::int64_t layer) : rows_(rows) { row_.layer = layer; }

  /// "# layer 3", "# step 1 layer 3"; any other comment changes nothing.
  void comment(std::vector<std::string_view> fields, const std::string& where) {
    if (fields[0] == "#") {
      fields.erase(fields.begin());
    } else {
      fields[0].remove_prefix(1);
    }
    const bool layer = fields.size() == 2 && fields[0] == "layer";
    const bool both = fields.size() == 4 && fields[0] == "step" && fields[2] == "layer";
    if (!layer && !both) {
      return;
    }
    if (!parse(fields.back(), row_.layer) || (both && !parse(fields[1], row_.step))) {
      throw InputError(where + "no numbers behind 'step' and 'layer'");
    }
  }

  void token(const std::vector<std::string_view>& fields, std::int64_t line) {
    parse_token(fields, rows_.at(line), row_);
    row_.token = tokens_[{row_.step, row_.layer}]++;
    rows_.add(row_, line);
  }

 private:
  Rows& rows_;
  Row row_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> tokens_;  // so far, per layer
};

}  // namespace

Trace from_table(std::string_view text, const std::string& name, const ConvertOptions& options) {
  Rows rows(name, options);
  Layers layers(rows, 0);
  bool first = true;
  for_each_line(text, rows, [&](std::string_view line, std::int64_t number) {
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.empty()) {
      return;
    }
    if (fields[0].starts_with('#')) {
      layers.comment(fields, rows.at(number));
      return;
    }
    if (!first || holds_a_number(fields)) {
      layers.token(fields, number);
    }
    first = false;
  });
  return rows.finish();
}

}  // namespace lrmoe::trace
