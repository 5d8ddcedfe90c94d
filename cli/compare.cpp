// lrmoe compare: trains several strategies from the same start on the same data.
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/compare.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> settings;
  std::string strategies;
  std::optional<double> target_loss;
  int seeds = 1;
  std::string run;
  bool quiet = false;
  std::string json;
};

void run(const Arguments& arguments) {
  check_json(arguments.json);
  train::CompareOptions options;
  options.config = train::load_config(arguments.config, arguments.settings);
  options.strategies = train::split_strategies(arguments.strategies);
  options.target_loss = arguments.target_loss;
  options.seeds = arguments.seeds;
  options.run_folder =
      arguments.run.empty()
          ? new_run_folder("compare-" + std::filesystem::path(arguments.config).stem().string())
          : arguments.run;
  options.quiet = arguments.quiet;
  const train::Comparison comparison =
      train::compare(options, [](const train::TrainOptions& one) { return train::train(one); });
  show(arguments.json,
       train::to_compare_text(comparison) + "run folder: " + options.run_folder + "\n");
  write_json(arguments.json, train::to_compare_json(comparison));
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "compare", "Train several strategies from the same start on the same data and compare them");
  command->add_option("config", arguments->config, "The configuration, a TOML file")
      ->type_name("CONFIG.toml")
      ->required();
  command
      ->add_option("--strategies", arguments->strategies,
                   "Names with commas between, each with its own settings after colons: "
                   "fixed,symi:capacity_factor=inf. There are: " +
                       join(plan::strategy_names()))
      ->type_name("LIST")
      ->required();
  command
      ->add_option("--target-loss", arguments->target_loss,
                   "Stop each strategy when its validation loss gets there (default: all steps; "
                   "the target is then the loss with which symi ends)")
      ->type_name("LOSS");
  command
      ->add_option("--seeds", arguments->seeds,
                   "Train each strategy with so many seeds, train.seed and those after it, and "
                   "give mean and range (default: 1)")
      ->type_name("N");
  command
      ->add_option("--set", arguments->settings,
                   "Override a key: section.key=value (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--run", arguments->run,
                   "The folder for all runs (default: runs/compare-<configuration>-<time>)")
      ->type_name("FOLDER");
  command->add_flag("--quiet", arguments->quiet, "Show no progress");
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
