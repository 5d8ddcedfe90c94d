#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {
namespace {

/// One `section.key = value` and where it was written.
struct Setting {
  std::string section;
  std::string key;
  Value value;
  std::string text;   // the value as it was written
  std::string where;  // begins messages
};

Value value_of(const toml::node& node) {
  if (const auto* x = node.as_boolean()) {
    return x->get();
  }
  if (const auto* x = node.as_integer()) {
    return x->get();
  }
  if (const auto* x = node.as_floating_point()) {
    return x->get();
  }
  if (const auto* x = node.as_string()) {
    return x->get();
  }
  if (const auto* x = node.as_array()) {
    std::vector<std::string> names;
    for (const toml::node& item : *x) {
      if (const auto* name = item.as_string()) {
        names.push_back(name->get());
      }
    }
    if (!names.empty() && names.size() == x->size()) {
      return names;
    }
    std::vector<std::int64_t> items;
    for (const toml::node& item : *x) {
      const auto* whole = item.as_integer();
      if (whole == nullptr) {
        return {};
      }
      items.push_back(whole->get());
    }
    return items;
  }
  return {};
}

std::string text_of(const toml::node& node) {
  const Value value = value_of(node);
  if (!std::holds_alternative<std::monostate>(value)) {
    return print_value(value);
  }
  std::ostringstream out;
  node.visit([&out](const auto& typed) { out << typed; });
  return out.str();
}

std::string at_line(const std::string& name, const toml::node& node) {
  return name + ":" + std::to_string(node.source().begin.line);
}

/// "; did you mean ...?": the nearest key of the section, or the section that has it.
std::string suggest_key(const std::string& section, const std::string& key) {
  if (find_field(section, key) == nullptr) {
    for (const std::string& other : section_names()) {
      if (find_field(other, key) != nullptr) {
        return "; it belongs to [" + other + "]";
      }
    }
  }
  const std::vector<std::string> keys = key_names(section);
  return "; did you mean " + quote(nearest_name(key, keys)) + "? [" + section +
         "] takes: " + join(keys);
}

void check_section(const std::string& section, const std::string& where) {
  const std::vector<std::string> sections = section_names();
  if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
    throw InputError(where + ": unknown section [" + one_line(section) + "]; did you mean [" +
                     nearest_name(section, sections) + "]? Sections are: " + join(sections));
  }
}

const Field& field_of(const Setting& setting) {
  check_section(setting.section, setting.where);
  const Field* field = find_field(setting.section, setting.key);
  if (field == nullptr) {
    throw InputError(setting.where + ": unknown key " + quote(setting.key) + " in [" +
                     setting.section + "]" + suggest_key(setting.section, setting.key));
  }
  return *field;
}

void apply(const Field& field, const Setting& setting, Config& config) {
  const Config before = config;
  if (!field.set(config, setting.value)) {
    throw InputError(setting.where + ": " + field.name() + " = " + one_line(setting.text, 80) +
                     " will not do; it takes " + field.expected);
  }
  check_contradiction(field, before, config, setting.where);
}

toml::table parse_toml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw InputError(name + ":" + std::to_string(error.source().begin.line) + ":" +
                     std::to_string(error.source().begin.column) +
                     ": not TOML: " + one_line(error.description()));
  }
}

std::vector<Setting> settings_of_file(const std::string& text, const std::string& name) {
  std::vector<Setting> settings;
  const toml::table file = parse_toml(text, name);
  for (const auto& [section, node] : file) {
    const std::string where = at_line(name, node);
    const toml::table* table = node.as_table();
    const std::string section_name(section.str());
    if (table == nullptr) {
      const auto sections = section_names();
      if (std::find(sections.begin(), sections.end(), section_name) != sections.end()) {
        throw InputError(where + ": " + section_name + " is a section: write [" + section_name +
                         "] and its keys below it");
      }
      for (const std::string& other : sections) {
        if (find_field(other, section_name) != nullptr) {
          throw InputError(where + ": the key " + quote(section_name) +
                           " stands outside a section; it belongs to [" + other + "]");
        }
      }
      throw InputError(where + ": unknown key " + quote(section_name) +
                       " outside a section; sections are: " + join(sections));
    }
    check_section(section_name, where);
    for (const auto& [key, value] : *table) {
      settings.push_back({section_name, std::string(key.str()), value_of(value), text_of(value),
                          at_line(name, value)});
    }
  }
  return settings;
}

/// The value in TOML syntax, or the text itself where it is a bare word.
Value parse_value(const std::string& text, const std::string& where) {
  const bool structured = !text.empty() && std::string("\"'[{").find(text[0]) != std::string::npos;
  if (structured || text.find_first_of("\r\n") == std::string::npos) {
    try {
      const toml::table table = toml::parse("value = " + text);
      if (table.size() == 1) {
        return value_of(*table.get("value"));
      }
    } catch (const toml::parse_error& error) {
      if (structured) {
        throw InputError(where + ": not a TOML value: " + one_line(error.description()));
      }
    }
  }
  try {
    // What to_toml would write must read back.
    [[maybe_unused]] const toml::table written = toml::parse("value = " + print_value(text));
  } catch (const toml::parse_error&) {
    throw InputError(where + ": the value is not UTF-8 text");
  }
  return text;
}

Setting setting_of(const std::string& text) {
  const std::string where = "--set " + one_line(text, 80);
  const std::size_t equals = text.find('=');
  const std::string name = trimmed(text.substr(0, equals));
  const std::size_t dot = name.find('.');
  if (equals == std::string::npos || dot == std::string::npos) {
    throw InputError(where + ": a setting is written section.key=value, as in train.steps=100");
  }
  const std::string value = trimmed(text.substr(equals + 1));
  return {name.substr(0, dot), name.substr(dot + 1), parse_value(value, where), value, where};
}

Config resolve(const std::vector<Setting>& settings, const std::string& name) {
  Config config;
  for (const bool first : {true, false}) {
    for (auto setting = settings.begin(); setting != settings.end(); ++setting) {
      const Field& field = field_of(*setting);
      // A model's folder that is named again later does not have to be there.
      const bool replaced =
          first && std::any_of(setting + 1, settings.end(), [&](const Setting& later) {
            return later.section == setting->section && later.key == setting->key;
          });
      if (field.before_others == first && !replaced) {
        apply(field, *setting, config);
      }
    }
  }
  check_config(config, name);
  return config;
}

}  // namespace

Config parse_config(const std::string& toml, const std::string& name,
                    const std::vector<std::string>& settings) {
  std::vector<Setting> all = settings_of_file(toml, name);
  for (const std::string& text : settings) {
    all.push_back(setting_of(text));
  }
  return resolve(all, name);
}

Config load_config(const std::string& path, const std::vector<std::string>& settings) {
  return parse_config(read_text(path), one_line(path), settings);
}

Config with_strategy(const Config& config, const std::string& spec) {
  const std::string where = "strategy " + quote(spec);
  const std::vector<std::string> parts = split(spec, ':');
  std::vector<const Field*> fields;
  std::vector<std::string> keys;
  for (const Field& field : config_fields()) {
    if (field.of_strategy) {
      fields.push_back(&field);
      keys.push_back(field.key);
    }
  }
  Config changed = config;
  changed.strategy.name = trimmed(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) {
      throw InputError(where + ": " + quote(parts[i]) +
                       " is no setting; write key=value, as in symi:capacity_factor=inf");
    }
    const std::string key = trimmed(parts[i].substr(0, equals));
    const std::string text = trimmed(parts[i].substr(equals + 1));
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      throw InputError(where + ": unknown setting " + quote(key) + "; did you mean " +
                       quote(nearest_name(key, keys)) + "? A strategy takes: " + join(keys));
    }
    apply(*fields[static_cast<std::size_t>(found - keys.begin())],
          {"strategy", key, parse_value(text, where), text, where}, changed);
  }
  check_config(changed, where);
  return changed;
}

}  // namespace lrmoe::train
