// lrmoe train: trains a model as a configuration says.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/size.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/trainer.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> settings;
  std::string run;
  bool resume = false;
  bool quiet = false;
  std::string json;
};

std::string to_json(const std::string& run, const train::TrainResult& result) {
  using Json = nlohmann::ordered_json;
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  Json validations = Json::array();
  for (const train::Validation& v : result.validations) {
    validations.push_back({{"step", v.step},
                           {"loss", number(v.loss)},
                           {"moe_seconds", v.moe_seconds},
                           {"total_seconds", v.total_seconds}});
  }
  const Json json{
      {"format", "lrmoe-train"},
      {"version", 1},
      {"run", run},
      {"steps", result.steps},
      {"final_loss", result.losses.empty() ? Json(nullptr) : number(result.losses.back())},
      {"validation_loss",
       result.validations.empty() ? Json(nullptr) : number(result.validations.back().loss)},
      {"moe_seconds", result.moe_seconds},
      {"total_seconds", result.total_seconds},
      {"added_variance", number(result.added_variance)},
      {"dropped_pairs", result.dropped_pairs},
      {"memory_subtotal", result.memory_peak_bytes},
      {"validations", validations}};
  return json.dump(2) + "\n";
}

std::string summary(const std::string& run, const train::TrainResult& result,
                    const train::Config& config) {
  std::string text = std::to_string(result.steps) + " steps";
  char buffer[160];
  if (!result.losses.empty()) {
    std::snprintf(buffer, sizeof buffer, ", loss %.4f", result.losses.back());
    text += buffer;
  }
  if (!result.validations.empty()) {
    std::snprintf(buffer, sizeof buffer, ", validation loss %.4f", result.validations.back().loss);
    text += buffer;
  }
  std::snprintf(buffer, sizeof buffer, ", %.1f s (MoE %.1f s), %lld pairs dropped, MoE memory %s\n",
                result.total_seconds, result.moe_seconds,
                static_cast<long long>(result.dropped_pairs),
                print_size(result.memory_peak_bytes).c_str());
  return text + buffer + "clock: " + train::clock_words(config) + "\nrun folder: " + run + "\n";
}

void run(const Arguments& arguments) {
  if (arguments.resume && arguments.run.empty()) {
    throw InputError("--resume needs --run FOLDER, the run to go on with");
  }
  check_json(arguments.json);
  train::TrainOptions options;
  options.config = train::load_config(arguments.config, arguments.settings);
  options.run_folder = arguments.run.empty()
                           ? new_run_folder(std::filesystem::path(arguments.config).stem().string())
                           : arguments.run;
  options.resume = arguments.resume;
  options.quiet = arguments.quiet;
  const train::TrainResult result = train::train(options);
  show(arguments.json, summary(options.run_folder, result, options.config));
  write_json(arguments.json, to_json(options.run_folder, result));
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model; writes a run folder");
  command->add_option("config", arguments->config, "The configuration, a TOML file")
      ->type_name("CONFIG.toml")
      ->required();
  command
      ->add_option("--set", arguments->settings,
                   "Override a key: section.key=value (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--run", arguments->run, "The run folder (default: runs/<configuration>-<time>)")
      ->type_name("FOLDER");
  command->add_flag("--resume", arguments->resume,
                    "Go on from the newest checkpoint of the run folder");
  command->add_flag("--quiet", arguments->quiet, "Show no progress");
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
