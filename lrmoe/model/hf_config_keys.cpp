#include "lrmoe/model/hf_config_keys.h"

#include <cmath>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::model {

namespace {

using Json = nlohmann::json;

Json parse(std::string_view text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw InputError(name + ": no JSON: " + one_line(error.what()));
  }
  if (!json.is_object()) {
    throw InputError(name + ": a model's configuration is a JSON object with model_type, " +
                     "hidden_size and so on");
  }
  return json;
}

}  // namespace

Keys::Keys(std::string_view text, const std::string& name, std::vector<std::string>* refused)
    : Keys(parse(text, name), name, "", refused) {}

Keys::Keys(Json json, std::string name, std::string prefix, std::vector<std::string>* refused)
    : json_(std::move(json)),
      name_(std::move(name)),
      prefix_(std::move(prefix)),
      refused_(refused) {}

const Json* Keys::find(const std::string& key) {
  read_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

int Keys::integer(const std::string& key, std::int64_t low, std::int64_t high,
                  std::optional<int> otherwise) {
  const Json* json = find(key);
  const int fallback = otherwise.value_or(static_cast<int>(std::max<std::int64_t>(low, 0)));
  if (json == nullptr) {
    if (!otherwise) {
      refuse(key, "a whole number must stand there");
    }
    return fallback;
  }
  const bool too_large =
      json->is_number_unsigned() && json->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (!json->is_number_integer() || too_large || json->get<std::int64_t>() < low ||
      json->get<std::int64_t>() > high) {
    refuse(key,
           "it takes a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    return fallback;
  }
  return json->get<int>();
}

double Keys::number(const std::string& key, std::optional<double> otherwise) {
  const Json* json = find(key);
  if (json == nullptr && otherwise) {
    return *otherwise;
  }
  if (json == nullptr || !json->is_number() || !std::isfinite(json->get<double>()) ||
      json->get<double>() < 0) {
    refuse(key, "it takes a number, at least 0");
    return otherwise.value_or(1.0);
  }
  return json->get<double>();
}

bool Keys::flag(const std::string& key, bool otherwise) {
  const Json* json = find(key);
  if (json != nullptr && !json->is_boolean()) {
    refuse(key, "it takes true or false");
    return otherwise;
  }
  return json == nullptr ? otherwise : json->get<bool>();
}

std::string Keys::text(const std::string& key, const std::string& otherwise) {
  const Json* json = find(key);
  if (json != nullptr && !json->is_string()) {
    refuse(key, "it takes a text");
    return otherwise;
  }
  return json == nullptr ? otherwise : json->get<std::string>();
}

std::vector<int> Keys::integers(const std::string& key) {
  std::vector<int> values;
  const Json* json = find(key);
  if (json == nullptr) {
    return values;
  }
  for (const Json& item : json->is_array() ? *json : Json::array({*json})) {
    if (!json->is_array() || !item.is_number_unsigned() || item.get<std::uint64_t>() > 1 << 20) {
      refuse(key, "it takes a list of whole numbers");
      return {};
    }
    values.push_back(item.get<int>());
  }
  return values;
}

std::vector<std::string> Keys::texts(const std::string& key) {
  std::vector<std::string> values;
  const Json* json = find(key);
  if (json == nullptr) {
    return values;
  }
  for (const Json& item : json->is_array() ? *json : Json::array({*json})) {
    if (!json->is_array() || !item.is_string()) {
      refuse(key, "it takes a list of texts");
      return {};
    }
    values.push_back(item.get<std::string>());
  }
  return values;
}

std::optional<Keys> Keys::object(const std::string& key) {
  const Json* json = find(key);
  if (json == nullptr) {
    return {};
  }
  if (!json->is_object()) {
    refuse(key, "it takes an object");
    return {};
  }
  return Keys(*json, name_, prefix_ + key + ".", refused_);
}

std::string Keys::alias(const std::string& first, const std::string& second) {
  const Json* a = find(first);
  const Json* b = find(second);
  if (a != nullptr && b != nullptr && *a != *b) {
    refuse(second, "it is another name of " + first + ", which has another value");
  }
  return a == nullptr && b != nullptr ? second : first;
}

void Keys::only(const std::string& key, const std::string& value, const std::string& otherwise) {
  if (text(key, otherwise) != value) {
    refuse(key, "only " + quote(value) + " is computed");
  }
}

void Keys::null(const std::string& key) {
  if (find(key) != nullptr) {
    refuse(key, "this is not computed; without it (null) it would be");
  }
}

void Keys::zero(const std::string& key) {
  if (number(key, 0.0) != 0.0) {
    refuse(key, "this is not computed; 0 would be");
  }
}

void Keys::refuse(const std::string& key, const std::string& why) {
  const auto found = json_.find(key);
  const std::string value =
      found == json_.end() ? " is missing"
                           : " = " + one_line(found->dump(-1, ' ', true), 60) + " cannot be used";
  const std::string line = name_ + ": " + prefix_ + one_line(key, 60) + value + "; " + why;
  if (refused_ == nullptr) {
    throw InputError(line);
  }
  refused_->push_back(line);
}

void Keys::refuse_rest(const std::string& why) {
  for (const std::string& key : unread()) {
    read_.insert(key);
    refuse(key, why);
  }
}

std::vector<std::string> Keys::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items()) {
    if (!read_.contains(key) && !value.is_null()) {
      keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace lrmoe::model
