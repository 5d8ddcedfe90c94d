#include "lrmoe/train/checkpoint_state.h"

#include <nlohmann/json.hpp>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/names.h"

namespace lrmoe::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lrmoe-checkpoint";
constexpr int kVersion = 2;  // 2: score curves beside the model

Json rows(const plan::Counts& table) {
  Json out = Json::array();
  for (int r = 0; r < table.rows; ++r) {
    out.push_back(std::vector<std::int32_t>(table.row(r).begin(), table.row(r).end()));
  }
  return out;
}

// A table of the given shape with values in [least, most].
plan::Counts table(const Json& json, int rows, int cols, std::int32_t least, std::int32_t most) {
  const auto values = json.get<std::vector<std::vector<std::int32_t>>>();
  if (values.size() != static_cast<std::size_t>(rows)) {
    throw InputError("a table with a wrong number of rows");
  }
  plan::Counts out(rows, cols);
  for (int r = 0; r < rows; ++r) {
    const auto& row = values[static_cast<std::size_t>(r)];
    if (row.size() != static_cast<std::size_t>(cols)) {
      throw InputError("a table with a wrong number of columns");
    }
    for (int c = 0; c < cols; ++c) {
      out.at(r, c) = row[static_cast<std::size_t>(c)];
      if (out.at(r, c) < least || out.at(r, c) > most) {
        throw InputError("a table with a value out of range");
      }
    }
  }
  return out;
}

// A change anywhere in the file shows in it.
std::string digest(const Json& state) {
  return std::to_string(hash(state.dump()));
}

CheckpointState parse(const std::string& text) {
  const Json file = Json::parse(text);
  if (file.at("format") != kFormat) {
    throw InputError("its format is " + file.at("format").dump() + ", not \"" + kFormat + "\"");
  }
  if (file.at("version") != kVersion) {
    throw InputError("its version is " + file.at("version").dump() + "; this program reads " +
                     std::to_string(kVersion));
  }
  const Json& json = file.at("state");
  if (file.at("hash") != digest(json)) {
    throw InputError("its contents do not match its hash");
  }
  CheckpointState state;
  state.step = json.at("step");
  state.config = json.at("config");
  state.strategy = json.at("strategy");
  state.owned = json.at("owned");
  state.cluster.ranks = json.at("ranks");
  state.cluster.experts = json.at("experts");
  state.cluster.slots = json.at("slots");
  state.cluster.top_k = json.at("top_k");
  for (const Json& layer : json.at("layers")) {
    state.layers.push_back({table(layer.at("placement"), state.cluster.ranks, state.cluster.slots,
                                  -1, state.cluster.experts - 1),
                            table(layer.at("demand"), state.cluster.ranks, state.cluster.experts, 0,
                                  std::numeric_limits<std::int32_t>::max())});
  }
  return state;
}

}  // namespace

void write_state(const CheckpointState& state, const std::filesystem::path& path) {
  Json json = {{"step", state.step},           {"config", state.config},
               {"strategy", state.strategy},   {"owned", state.owned},
               {"ranks", state.cluster.ranks}, {"experts", state.cluster.experts},
               {"slots", state.cluster.slots}, {"top_k", state.cluster.top_k},
               {"layers", Json::array()}};
  for (const CheckpointState::Layer& layer : state.layers) {
    json["layers"].push_back(
        {{"placement", rows(layer.placement)}, {"demand", rows(layer.demand)}});
  }
  const Json file = {
      {"format", kFormat}, {"version", kVersion}, {"hash", digest(json)}, {"state", json}};
  write_file(path, file.dump() + "\n");
}

CheckpointState read_state(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  const auto refuse = [&](const std::string& why) {
    throw InputError("checkpoint file " + quote(path.string()) + " cannot be used: " +
                     one_line(why) + "; remove its folder to go on from an older one");
  };
  try {
    return parse(text);
  } catch (const nlohmann::json::exception& error) {
    refuse(std::string("it is damaged (") + error.what() + ")");
  } catch (const InputError& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace lrmoe::train
