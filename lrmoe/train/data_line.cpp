#include "lrmoe/train/data_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/data_ids.h"

namespace lrmoe::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kForm =
    R"(; a line is {"tokens": [ids], "prompt": n} or {"tokens": [ids], "mask": [0, 1, ...]})";

void read_tokens(const Json& json, const std::string& where, int vocabulary,
                 std::vector<std::int64_t>& tokens) {
  if (!json.is_array()) {
    throw InputError(where + ": \"tokens\" is no list" + kForm);
  }
  tokens.reserve(json.size());
  for (const Json& item : json) {
    if (!item.is_number_integer()) {
      throw InputError(where + ", token " + std::to_string(tokens.size()) + ": " +
                       one_line(item.dump(), 40) + " is no whole number" + kForm);
    }
    // Above 2^63 it turns negative, which no id is.
    const auto id = item.get<std::int64_t>();
    if (vocabulary > 0 && (id < 0 || id >= vocabulary)) {
      refuse_id(where + ", token " + std::to_string(tokens.size()), item.dump(), vocabulary);
    }
    tokens.push_back(id);
  }
  if (tokens.size() < 2) {
    throw InputError(where + ": " + std::to_string(tokens.size()) +
                     " tokens have nothing to predict; it takes two at least");
  }
}

void read_prompt(const Json& json, const std::string& where, Sequence& sequence) {
  const std::size_t size = sequence.tokens.size();
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0 ||
      json.get<std::uint64_t>() >= size) {
    throw InputError(where + ": \"prompt\" is " + one_line(json.dump(), 40) + "; it counts the " +
                     "first tokens that are not trained on, 0 to " + std::to_string(size - 1) +
                     " of these " + std::to_string(size));
  }
  std::fill_n(sequence.trained.begin(), json.get<std::int64_t>(), std::uint8_t{0});
}

void read_mask(const Json& json, const std::string& where, Sequence& sequence) {
  const std::size_t size = sequence.tokens.size();
  if (!json.is_array() || json.size() != size) {
    throw InputError(where + ": \"mask\" has " +
                     (json.is_array() ? std::to_string(json.size()) + " entries" : "no entries") +
                     " for " + std::to_string(size) + " tokens; it takes 0 or 1 for each");
  }
  for (std::size_t i = 0; i < size; ++i) {
    const Json& item = json[i];
    if (item != Json(0) && item != Json(1) && !item.is_boolean()) {
      throw InputError(where + ": \"mask\" has " + one_line(item.dump(), 40) + " at position " +
                       std::to_string(i) + "; it takes 0 (not trained on) or 1");
    }
    sequence.trained[i] = item == Json(1) || item == Json(true) ? 1 : 0;
  }
}

}  // namespace

Sequence parse_line(std::string_view line, const std::string& where, int vocabulary) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw InputError(where + ": this is no JSON object" + kForm);
  }
  if (!json.contains("tokens")) {
    throw InputError(where + ": there is no \"tokens\"" + kForm +
                     "; python -m lrmoe.tokenize makes such lines from text");
  }
  Sequence sequence;
  read_tokens(json["tokens"], where, vocabulary, sequence.tokens);
  sequence.trained.assign(sequence.tokens.size(), 1);
  if (json.contains("prompt") && json.contains("mask")) {
    throw InputError(where + ": both \"prompt\" and \"mask\"; one of them says what is trained on");
  }
  if (json.contains("prompt")) {
    read_prompt(json["prompt"], where, sequence);
  } else if (json.contains("mask")) {
    read_mask(json["mask"], where, sequence);
  }
  sequence.trained[0] = 0;  // nothing predicts the first
  if (std::count(sequence.trained.begin(), sequence.trained.end(), 1) == 0) {
    throw InputError(where + ": its mask leaves no token to train on; leave the line out");
  }
  return sequence;
}

void cut_sequence(Sequence& sequence, std::size_t most) {
  if (sequence.tokens.size() > most) {
    sequence.tokens.resize(most);
    sequence.trained.resize(most);
  }
}

}  // namespace lrmoe::train
