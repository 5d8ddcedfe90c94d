// lrmoe export: a model as a folder that Transformers' from_pretrained loads.
#include "lrmoe/train/export.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "lrmoe/base/size.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  train::ExportOptions options;
  std::string shard_size = "5GB";
  std::string json;
};

void run(const Arguments& arguments) {
  check_json(arguments.json);
  train::ExportOptions options = arguments.options;
  options.shard_bytes =
      static_cast<std::uint64_t>(parse_size(arguments.shard_size, "--shard-size"));
  const train::ExportResult result = train::export_model(options);
  for (const std::string& notice : result.notices) {
    std::cerr << "lrmoe: " << notice << "\n";
  }
  show(arguments.json, "written: " + options.target.string() + "\n");
  const nlohmann::ordered_json json{{"format", "lrmoe-export"},
                                    {"version", 1},
                                    {"model", options.model.string()},
                                    {"target", options.target.string()}};
  write_json(arguments.json, json.dump(2) + "\n");
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  train::ExportOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("export", "Write a model as a folder that Transformers loads");
  command
      ->add_option("model", options.model,
                   "A run folder that began from a Hugging Face folder (its newest checkpoint), a "
                   "checkpoint in it (step-N), or a Hugging Face folder")
      ->type_name("MODEL_DIR")
      ->required();
  command->add_option("target", options.target, "The folder to write; it must not be there")
      ->type_name("OUT_DIR")
      ->required();
  command
      ->add_option("--shard-size", arguments->shard_size,
                   "Most bytes of a file of weights (default: 5GB)")
      ->type_name("SIZE");
  command->add_option("--ranks", options.ranks, "Ranks to spread the experts over (default: 1)")
      ->type_name("R")
      ->check(CLI::Range(1, 4096));
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
