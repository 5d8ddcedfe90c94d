#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/config_fields.h"
#include "lrmoe/train/config_freeze.h"

namespace lrmoe::train {
namespace {

int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

/// "model.top_k = 9": a key as it stands in a message.
template <class T>
std::string is(const std::string& key, const T& value) {
  return key + " = " + std::to_string(value);
}

void check_model(const model::ModelConfig& m, const std::string& where) {
  if (m.top_k > m.experts) {
    throw InputError(where + ": " + is("model.top_k", m.top_k) + " is more than " +
                     is("model.experts", m.experts) + "; a token can choose at most " +
                     std::to_string(m.experts) + " of them");
  }
  if (m.positions > 0 && m.sequence > m.positions) {
    throw InputError(where + ": " + is("model.sequence", m.sequence) +
                     " is more than the model was made for; it takes at most " +
                     std::to_string(m.positions));
  }
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    throw InputError(where + ": " + is("model.hidden", m.hidden) + " is no multiple of " +
                     is("model.heads", m.heads) + "; try model.hidden = " +
                     std::to_string(ceil_div(m.hidden, 2 * m.heads) * 2 * m.heads));
  }
  if (m.head_dim == 0 && m.hidden / m.heads % 2 != 0) {
    throw InputError(where +
                     ": model.hidden / model.heads = " + std::to_string(m.hidden / m.heads) +
                     " is odd; a head needs an even width, as with model.hidden = " +
                     std::to_string((m.hidden / m.heads + 1) * m.heads));
  }
  if (m.heads % m.kv_heads != 0) {
    throw InputError(where + ": " + is("model.heads", m.heads) + " is no multiple of " +
                     is("model.kv_heads", m.kv_heads) + "; model.kv_heads must divide model.heads");
  }
  for (std::size_t i = 0; i < m.dense_layers.size(); ++i) {
    const int layer = m.dense_layers[i];
    if (layer >= m.layers) {
      throw InputError(where + ": model.dense_layers names layer " + std::to_string(layer) +
                       ", but with " + is("model.layers", m.layers) + " the last is " +
                       std::to_string(m.layers - 1));
    }
    if (std::find(m.dense_layers.begin(), m.dense_layers.begin() + static_cast<std::ptrdiff_t>(i),
                  layer) != m.dense_layers.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw InputError(where + ": model.dense_layers names layer " + std::to_string(layer) +
                       " twice; name each dense layer once");
    }
  }
}

void check_tokens(const Config& c, const std::string& where) {
  const std::int64_t unit = std::int64_t{c.model.sequence} * c.train.accumulation;
  const std::int64_t tokens = c.train.tokens_per_step;
  const std::string words = is("model.sequence", c.model.sequence) + " times " +
                            is("train.accumulation", c.train.accumulation);
  if (tokens % unit != 0) {
    const std::int64_t right = std::max<std::int64_t>((tokens + unit / 2) / unit, 1) * unit;
    throw InputError(where + ": " + is("train.tokens_per_step", tokens) + " is no multiple of " +
                     words + "; the nearest that is: " + std::to_string(right));
  }
  if (tokens / unit < c.parallel.ranks) {
    throw InputError(where + ": " + is("train.tokens_per_step", tokens) +
                     " leaves some of the ranks without a sequence (" +
                     is("parallel.ranks", c.parallel.ranks) + ", " + words +
                     "); it takes at least " + std::to_string(unit * c.parallel.ranks));
  }
  if (c.train.evaluate_tokens < c.model.sequence) {
    throw InputError(where + ": " + is("train.evaluate_tokens", c.train.evaluate_tokens) +
                     " is less than one sequence; it takes at least " +
                     is("model.sequence", c.model.sequence));
  }
}

void check_strategy(const Config& c, const std::string& where) {
  const std::vector<std::string> names = plan::strategy_names();
  if (std::find(names.begin(), names.end(), c.strategy.name) == names.end()) {
    throw InputError(where + ": strategy.name = " + quote(c.strategy.name) +
                     " is not a strategy (nearest: " + quote(nearest_name(c.strategy.name, names)) +
                     "); there are: " + join(names));
  }
  try {
    plan::make_strategy(strategy_options(c));
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}

void check_parallel(const Config& c, const std::string& where) {
  if (c.parallel.engine != "threads") {
    throw InputError(where + ": parallel.engine = " + quote(c.parallel.engine) +
                     " is not available; this program was built with: threads");
  }
  const int least = ceil_div(c.model.experts, c.parallel.ranks);
  if (c.parallel.slots != 0 && c.parallel.slots < least) {
    throw InputError(where + ": " + is("parallel.slots", c.parallel.slots) + " on " +
                     is("parallel.ranks", c.parallel.ranks) + " cannot hold " +
                     is("model.experts", c.model.experts) +
                     "; the smallest that would do: parallel.slots = " + std::to_string(least));
  }
}

}  // namespace

void check_contradiction(const Field& field, const Config& before, const Config& after,
                         const std::string& where) {
  if (field.section != "model" || after.model_path.empty()) {
    return;
  }
  if (field.key == "preset") {
    throw InputError(where + ": model.preset and model.path both say what the model is; give one");
  }
  // What training adds, and what the folder's file does not say.
  const std::vector<std::string> free = {"path", "sequence", "bias_rate", "init_std"};
  if (std::find(free.begin(), free.end(), field.key) == free.end() &&
      field.get(before) != field.get(after)) {
    throw InputError(where + ": " + field.name() + " = " + print_value(field.get(after)) +
                     " contradicts " + quote(after.model_path + "/config.json") + ", which gives " +
                     print_value(field.get(before)) + "; leave the key out");
  }
}

int Config::slots() const {
  const int least = ceil_div(model.experts, parallel.ranks);
  if (plan::make_strategy({.name = strategy.name})->owns_experts()) {
    return least;
  }
  const int wanted = parallel.slots != 0 ? parallel.slots : least + 2;
  // An expert has at most one instance per rank, but for symi's placements, which may repeat it.
  return strategy.name.starts_with("symi") ? wanted : std::min(wanted, model.experts);
}

void check_trace(const Config& c, const std::string& where) {
  if (!c.trace.write.empty() && c.trace.scores &&
      plan::make_strategy(strategy_options(c))->selection() == nullptr) {
    throw InputError(where + ": trace.scores = true, but strategy.name = " +
                     quote(c.strategy.name) + " scores no pairs; lrmoe and symi-sampled do");
  }
}

void check_config(const Config& config, const std::string& where) {
  check_model(config.model, where);
  check_tokens(config, where);
  check_parallel(config, where);
  check_strategy(config, where);
  check_trace(config, where);
  check_freeze(config, where);
  try {
    if (const auto clock = virtual_clock(config)) {
      cost::check_clock(*clock);
    }
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}

}  // namespace lrmoe::train
