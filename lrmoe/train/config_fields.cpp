#include "lrmoe/train/config_fields.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "lrmoe/base/names.h"
#include "lrmoe/cost/profile.h"
#include "lrmoe/cost/shape.h"
#include "lrmoe/model/config_presets.h"
#include "lrmoe/model/hf_config.h"

namespace lrmoe::train {
namespace {

constexpr int kLongestByDefault = 2048;  // sequences of a model that takes more
constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();

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
constexpr Range kPositive{.low_open = true};
constexpr Range kClockScale{.high = 1e6, .low_open = true};  // tokens stay below 2^53
constexpr Range kSlack{.high = 100};
constexpr Range kNotNegative{};
constexpr Range kFraction{.high = 1};
constexpr Range kShare{.high = 1, .low_open = true};
constexpr Range kBelowOne{.high = 1, .high_open = true};

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
                 std::int64_t high = kMany) {
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

void add_data(std::vector<Field>& fields) {
  Section section(fields, "data", &Config::data);
  section.text("path", &DataConfig::path,
               "a file (text, .npy, .bin or .jsonl) or a folder of them, in quotes");
  section.real("validation_fraction", &DataConfig::validation_fraction, kBelowOne).fixed_on_resume =
      true;
  section
      .choice<IdType>("dtype", &DataConfig::dtype,
                      {{"uint16", IdType::uint16}, {"uint32", IdType::uint32}})
      .fixed_on_resume = true;
}

// A path is stored absolute, so that a run can be gone on with from anywhere.
Field model_path_field() {
  Field field;
  field.section = "model";
  field.key = "path";
  field.expected = "a Hugging Face folder, in quotes";
  field.before_others = true;
  field.get = [](const Config& config) { return Value(config.model_path); };
  field.set = [](Config& config, const Value& value) {
    const auto* path = std::get_if<std::string>(&value);
    if (path == nullptr) {
      return false;
    }
    if (path->empty()) {
      config.model_path.clear();
      return true;
    }
    config.model = model::read_hf_config(*path).model;
    config.model.sequence = std::min(config.model.sequence, kLongestByDefault);
    config.model_path = std::filesystem::absolute(*path).lexically_normal().string();
    return true;
  };
  return field;
}

void add_model(std::vector<Field>& fields) {
  using model::ModelConfig;
  const std::size_t first = fields.size();
  Field preset;
  preset.section = "model";
  preset.key = "preset";
  preset.expected = "one of " + join(model::preset_names());
  preset.before_others = true;
  preset.get = [](const Config&) { return Value(); };
  preset.set = [](Config& config, const Value& value) {
    const auto* name = std::get_if<std::string>(&value);
    return name != nullptr && model::apply_preset(*name, config.model);
  };
  fields.push_back(std::move(preset));
  fields.push_back(model_path_field());

  Section section(fields, "model", &Config::model);
  section.integer("vocabulary", &ModelConfig::vocabulary, 2, 1 << 20);
  section.integer("layers", &ModelConfig::layers, 1, 1024);
  section.integer("hidden", &ModelConfig::hidden, 1, 65536);
  section.integer("heads", &ModelConfig::heads, 1, 1024);
  section.integer("kv_heads", &ModelConfig::kv_heads, 1, 1024);
  section.integer("experts", &ModelConfig::experts, 1, 4096);
  section.integer("top_k", &ModelConfig::top_k, 1, 4096);
  section.integer("expert_width", &ModelConfig::expert_width, 1, 65536);
  section.integer("shared_experts", &ModelConfig::shared_experts, 0, 1024);
  section.list("dense_layers", &ModelConfig::dense_layers, 0, 1023);
  section.integer("dense_width", &ModelConfig::dense_width, 0, 1 << 20);
  section.choice<model::RouterKind>(
      "router", &ModelConfig::router,
      {{"softmax", model::RouterKind::softmax}, {"sigmoid", model::RouterKind::sigmoid}});
  section.flag("renormalise", &ModelConfig::renormalise);
  section.real("routed_scale", &ModelConfig::routed_scale, kPositive);
  section.real("bias_rate", &ModelConfig::bias_rate, kNotNegative);
  section.integer("sequence", &ModelConfig::sequence, 1, 1 << 20);
  section.real("rope_theta", &ModelConfig::rope_theta, kPositive);
  section.real("norm_eps", &ModelConfig::norm_eps, kPositive);
  section.real("init_std", &ModelConfig::init_std, kPositive);
  for (std::size_t i = first; i < fields.size(); ++i) {
    fields[i].fixed_on_resume = true;
  }
}

void add_train(std::vector<Field>& fields) {
  Section section(fields, "train", &Config::train);
  section.integer("steps", &TrainConfig::steps, 1);
  section.integer("tokens_per_step", &TrainConfig::tokens_per_step, 1, std::int64_t{1} << 40);
  section.integer("seed", &TrainConfig::seed, 0).fixed_on_resume = true;
  section.real("learning_rate", &TrainConfig::learning_rate, kPositive);
  section.integer("warmup", &TrainConfig::warmup, 0);
  section.real("final_rate", &TrainConfig::final_rate, kFraction);
  section.real("weight_decay", &TrainConfig::weight_decay, kNotNegative);
  section.real("beta1", &TrainConfig::beta1, kBelowOne);
  section.real("beta2", &TrainConfig::beta2, kBelowOne);
  section.real("clip", &TrainConfig::clip, kNotNegative);
  section.real("aux_loss", &TrainConfig::aux_loss, kNotNegative);
  Section(fields, "train", &Config::model)
      .choice<model::AuxLoss>("aux_loss_kind", &model::ModelConfig::aux_loss,
                              {{"per-layer", model::AuxLoss::per_layer},
                               {"transformers", model::AuxLoss::transformers}});
  section.integer("accumulation", &TrainConfig::accumulation, 1, 1 << 20);
  section.names("freeze", &TrainConfig::freeze).fixed_on_resume = true;
  section.names("train_only", &TrainConfig::train_only).fixed_on_resume = true;
  section
      .choice<Dtype>("dtype", &TrainConfig::dtype,
                     {{"float32", Dtype::float32}, {"bfloat16", Dtype::bfloat16}})
      .fixed_on_resume = true;
  const std::vector<std::pair<std::string, std::optional<Dtype>>> of_part{
      {"same", std::nullopt}, {"float32", Dtype::float32}, {"bfloat16", Dtype::bfloat16}};
  section.choice<std::optional<Dtype>>("expert_dtype", &TrainConfig::expert_dtype, of_part)
      .fixed_on_resume = true;
  section.choice<std::optional<Dtype>>("dense_dtype", &TrainConfig::dense_dtype, of_part)
      .fixed_on_resume = true;
  section.integer("checkpoint_every", &TrainConfig::checkpoint_every, 0);
  section.integer("keep", &TrainConfig::keep, 1);
  section.integer("evaluate_every", &TrainConfig::evaluate_every, 0);
  section.integer("evaluate_tokens", &TrainConfig::evaluate_tokens, 1);
}

void add_parallel(std::vector<Field>& fields) {
  Section section(fields, "parallel", &Config::parallel);
  section.text("engine", &ParallelConfig::engine, "the name of an engine, in quotes");
  section.integer("ranks", &ParallelConfig::ranks, 1, 4096);
  section.integer("slots", &ParallelConfig::slots, 0, 65536);
}

void add_strategy(std::vector<Field>& fields) {
  using plan::StrategyOptions;
  Section section(fields, "strategy", &Config::strategy);
  section.text("name", &StrategyOptions::name, "the name of a strategy, in quotes");
  section
      .real("capacity_factor", &StrategyOptions::capacity_factor,
            {.low_open = true, .infinity = true})
      .of_strategy = true;
}

void add_lrmoe(std::vector<Field>& fields) {
  using plan::LrmoeOptions;
  const std::size_t first = fields.size();
  Section section(
      fields, "lrmoe", [](auto& c) -> auto& { return c.strategy.lrmoe; });
  section.real("ratio", &LrmoeOptions::ratio, kShare);
  section.real("variance", &LrmoeOptions::variance, kNotNegative);
  section.real("time", &LrmoeOptions::time, kNotNegative);
  section.choice<plan::SelectMode>(
      "mode", &LrmoeOptions::mode,
      {{"sampled", plan::SelectMode::sampled}, {"top", plan::SelectMode::top}});
  section.choice<plan::Metric>("metric", &LrmoeOptions::metric,
                               {{"gate", plan::Metric::gate},
                                {"gate-grad", plan::Metric::gate_grad},
                                {"down-norm", plan::Metric::down_norm},
                                {"update-norm", plan::Metric::update_norm},
                                {"update-router", plan::Metric::update_router},
                                {"exact", plan::Metric::exact},
                                {"random", plan::Metric::random}});
  section.real("shortlist", &LrmoeOptions::shortlist, kShare);
  section.choice<plan::ShortlistBy>(
      "shortlist_by", &LrmoeOptions::shortlist_by,
      {{"gate", plan::ShortlistBy::gate}, {"output", plan::ShortlistBy::output}});
  section.choice<plan::RouterGradient>("router_gradient", &LrmoeOptions::router_gradient,
                                       {{"centred", plan::RouterGradient::centred},
                                        {"remainder", plan::RouterGradient::remainder},
                                        {"kept", plan::RouterGradient::kept},
                                        {"exact", plan::RouterGradient::exact}});
  section.choice<std::optional<plan::Activations>>("activations", &LrmoeOptions::activations,
                                                   {{"", std::nullopt},
                                                    {"keep", plan::Activations::keep},
                                                    {"recompute", plan::Activations::recompute},
                                                    {"quota", plan::Activations::quota}});
  section.choice<plan::Placing>(
      "placement", &LrmoeOptions::placing,
      {{"next-step", plan::Placing::next_step}, {"in-step", plan::Placing::in_step}});
  section.real("floor", &LrmoeOptions::floor, kFraction);
  section.real("slack", &LrmoeOptions::slack, kSlack);
  section.real("variance_limit", &LrmoeOptions::variance_limit, kNotNegative);
  Section trainer(fields, "lrmoe", &Config::lrmoe);
  trainer.integer("audit_every", &LrmoeTrainConfig::audit_every, 0);
  for (std::size_t i = first; i < fields.size(); ++i) {
    fields[i].of_strategy = true;
  }
}

void add_clock(std::vector<Field>& fields) {
  Section section(fields, "clock", &Config::clock);
  Field& profile = section.text("profile", &ClockConfig::profile,
                                "measured (wall time), one of " + join(cost::profile_names()) +
                                    ", or a TOML file with a profile (NAME.toml)");
  profile.set = [](Config& config, const Value& value) {
    const auto* name = std::get_if<std::string>(&value);
    if (name == nullptr) {
      return false;
    }
    const std::vector<std::string> names = cost::profile_names();
    const bool measured = name->empty() || *name == "measured";
    const bool known = measured || cost::is_profile_file(*name) ||
                       std::find(names.begin(), names.end(), *name) != names.end();
    config.clock.profile = measured ? "measured" : known ? *name : config.clock.profile;
    return known;
  };
  std::vector<std::pair<std::string, std::string>> shapes;
  for (const std::string& name : cost::shape_names()) {
    shapes.emplace_back(name, name);
  }
  section.choice<std::string>("shape", &ClockConfig::shape, shapes).expected =
      "one of " + join(cost::shape_names());
  section.real("scale", &ClockConfig::scale, kClockScale);
  section.integer("ranks_per_node", &ClockConfig::ranks_per_node, -1, 65536).expected =
      "a whole number, with 0 for all ranks in one node and -1 for the profile's";
}

void add_memory(std::vector<Field>& fields) {
  Section section(fields, "memory", &Config::memory);
  section.text("budget", &MemoryConfig::budget,
               "a size in quotes, such as '40GiB', or '' for none");
}

void add_trace(std::vector<Field>& fields) {
  Section section(fields, "trace", &Config::trace);
  section.text("write", &TraceConfig::write, "a file, in quotes");
  section.flag("scores", &TraceConfig::scores);
  section.integer("steps", &TraceConfig::steps, 0);
}

std::vector<Field> make_fields() {
  std::vector<Field> fields;
  add_data(fields);
  add_model(fields);
  add_train(fields);
  add_parallel(fields);
  add_strategy(fields);
  add_lrmoe(fields);
  add_clock(fields);
  add_memory(fields);
  add_trace(fields);
  return fields;
}

}  // namespace

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Field& field : config_fields()) {
    if (names.empty() || names.back() != field.section) {
      names.push_back(field.section);
    }
  }
  return names;
}

std::vector<std::string> key_names(std::string_view section) {
  std::vector<std::string> names;
  for (const Field& field : config_fields()) {
    if (field.section == section) {
      names.push_back(field.key);
    }
  }
  return names;
}

const Field* find_field(std::string_view section, std::string_view key) {
  for (const Field& field : config_fields()) {
    if (field.section == section && field.key == key) {
      return &field;
    }
  }
  return nullptr;
}

}  // namespace lrmoe::train
