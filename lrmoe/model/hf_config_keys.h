// The keys of a config.json, read one by one with their types checked; what was
// never asked for is known at the end.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lrmoe/model/config.h"

namespace lrmoe::model {

/// The one architecture of a family that is computed: "Qwen3MoeForCausalLM".
std::string architecture(Family family);

/// null counts as absent throughout, as it does in Transformers.
class Keys {
 public:
  /// InputError when the text is no JSON object. With `refused`, refusals are
  /// collected there and a default is taken; otherwise the first is thrown.
  Keys(std::string_view text, const std::string& name, std::vector<std::string>* refused);

  /// Without a default, a missing key is refused.
  int integer(const std::string& key, std::int64_t low, std::int64_t high,
              std::optional<int> otherwise = {});
  double number(const std::string& key, std::optional<double> otherwise = {});
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  std::vector<int> integers(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  /// The object under a key, whose unread keys are its own.
  std::optional<Keys> object(const std::string& key);

  /// The name under which a value stands, of two that it may have.
  std::string alias(const std::string& first, const std::string& second);

  /// Refused unless absent or this value; absent; zero.
  void only(const std::string& key, const std::string& value, const std::string& otherwise);
  void null(const std::string& key);
  void zero(const std::string& key);
  /// Whatever it is, it changes nothing.
  void pass(const std::string& key) { read_.insert(key); }

  /// One line: "FILE: key = value cannot be used; why".
  void refuse(const std::string& key, const std::string& why);
  /// All keys that were never read.
  void refuse_rest(const std::string& why);
  std::vector<std::string> unread() const;

 private:
  Keys(nlohmann::json json, std::string name, std::string prefix,
       std::vector<std::string>* refused);
  const nlohmann::json* find(const std::string& key);

  nlohmann::json json_;
  std::string name_;
  std::string prefix_;  // "rope_parameters."
  std::vector<std::string>* refused_;
  std::set<std::string> read_;
};

}  // namespace lrmoe::model
