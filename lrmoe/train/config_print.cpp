#include <array>
#include <charconv>
#include <cmath>

#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {
namespace {

std::string print_real(double x) {
  if (std::isnan(x)) {
    return "nan";
  }
  if (std::isinf(x)) {
    return x > 0 ? "inf" : "-inf";
  }
  std::array<char, 40> buffer{};
  // The shortest digits that read back as the same number.
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string print_string(const std::string& text) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += std::string("\\u00") + digits[byte >> 4] + digits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

struct Printer {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(std::int64_t x) const { return std::to_string(x); }
  std::string operator()(double x) const { return print_real(x); }
  std::string operator()(const std::string& x) const { return print_string(x); }
  std::string operator()(const std::vector<std::int64_t>& x) const {
    std::string out = "[";
    for (std::size_t i = 0; i < x.size(); ++i) {
      out += (i == 0 ? "" : ", ") + std::to_string(x[i]);
    }
    return out + "]";
  }
  std::string operator()(const std::vector<std::string>& x) const {
    std::string out = "[";
    for (std::size_t i = 0; i < x.size(); ++i) {
      out += (i == 0 ? "" : ", ") + print_string(x[i]);
    }
    return out + "]";
  }
};

}  // namespace

std::string print_value(const Value& value) {
  return std::visit(Printer{}, value);
}

std::string to_toml(const Config& config) {
  std::string out;
  std::string section;
  for (const Field& field : config_fields()) {
    const Value value = field.get(config);
    if (std::holds_alternative<std::monostate>(value)) {
      continue;
    }
    if (field.section != section) {
      section = field.section;
      out += (out.empty() ? "[" : "\n[") + section + "]\n";
    }
    out += field.key + " = " + print_value(value) + "\n";
  }
  return out;
}

std::string changed_on_resume(const Config& before, const Config& now) {
  for (const Field& field : config_fields()) {
    if (field.fixed_on_resume && field.get(before) != field.get(now)) {
      return field.name() + " = " + print_value(field.get(before)) + " (now " +
             print_value(field.get(now)) + ")";
    }
  }
  return "";
}

}  // namespace lrmoe::train
