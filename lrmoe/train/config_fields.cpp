#include "lrmoe/train/config_fields.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lrmoe/base/names.h"
#include "lrmoe/cost/profile.h"
#include "lrmoe/cost/shape.h"
#include "lrmoe/model/config_presets.h"
#include "lrmoe/model/hf_config.h"
#include "lrmoe/train/config_section.h"

namespace lrmoe::train {
namespace {

constexpr int kLongestByDefault = 2048;  // sequences of a model that takes more

constexpr Range kPositive{.low_open = true};
constexpr Range kClockScale{.high = 1e6, .low_open = true};  // tokens stay below 2^53
constexpr Range kSlack{.high = 100};
constexpr Range kNotNegative{};
constexpr Range kFraction{.high = 1};
constexpr Range kShare{.high = 1, .low_open = true};
constexpr Range kBelowOne{.high = 1, .high_open = true};

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
