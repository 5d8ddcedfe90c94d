// lrmoe estimate: memory of a model's MoE layers, without cluster or weights.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/clusters.h"
#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/replay/estimate.h"
#include "lrmoe/train/config_clock.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string model;
  int ranks = 0;
  int slots = 0;
  std::int64_t tokens = 0;
  std::string strategy;
  SelectionArguments selection;
  std::string memory;
  double imbalance = 1;
  int chunks = 0;
  int layers = 0;
  std::string json;
};

void run(const Arguments& arguments) {
  check_json(arguments.json);
  replay::EstimateOptions options;
  options.shape = find_model(arguments.model, {});
  train::Config base = base_config(arguments.selection);
  std::string strategy = arguments.strategy;
  plan::PlanCosts costs;
  if (arguments.model.ends_with(".toml")) {  // what the options do not say is the run's
    const train::Config config = train::load_config(arguments.model, {});
    base = base_config(arguments.selection, config);
    strategy = strategy.empty() ? config.strategy.name : strategy;
    options.ranks = config.parallel.ranks;
    options.slots = config.parallel.slots;
    options.tokens = config.train.tokens_per_step / config.train.accumulation;
    const plan::StrategyOptions planner = train::strategy_options(config);
    options.budget = planner.memory.bytes;
    costs = planner.costs;
  }
  options.ranks = arguments.ranks > 0 ? arguments.ranks : options.ranks;
  options.slots = arguments.slots > 0 ? arguments.slots : options.slots;
  options.tokens = arguments.tokens > 0 ? arguments.tokens : options.tokens;
  if (options.tokens == 0) {
    options.tokens = std::int64_t{4096} * options.ranks;
  }
  const replay::Entry entry = parse_entry(base, strategy.empty() ? "lrmoe" : strategy);
  options.strategy = entry.options;
  options.strategy.costs = costs;
  options.slots = entry.slots > 0 ? entry.slots : options.slots;
  options.chunks = entry.chunks > 0 ? entry.chunks : std::max(arguments.chunks, 1);
  options.imbalance = arguments.imbalance;
  if (!arguments.memory.empty()) {
    options.budget = parse_budget(arguments.memory);
  }
  options.layers_in_flight = arguments.layers;
  const replay::Estimate estimate = replay::estimate(options);
  show(arguments.json, replay::to_text(estimate));
  write_json(arguments.json, replay::to_json(estimate).dump(2) + "\n");
}

}  // namespace

void add_estimate(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "estimate", "Memory of a model's MoE layers per rank and term, without cluster or weights");
  command
      ->add_option("--model", arguments->model,
                   "One of " + join(cost::shape_names()).substr(5) +
                       ", a training configuration (.toml), or a Hugging Face folder or its "
                       "config.json")
      ->type_name("NAME_OR_CONFIG")
      ->required();
  command->add_option("--ranks", arguments->ranks, "R (default: the configuration's, or 1)")
      ->type_name("R")
      ->check(CLI::Range(1, trace::kMostRanks));
  command
      ->add_option("--slots", arguments->slots,
                   "S, experts that a rank has room for (default: ceil(E / R) + 2)")
      ->type_name("S")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--tokens", arguments->tokens,
                   "Tokens over all ranks that are in flight together, a step's or a "
                   "micro-batch's (default: the configuration's, or 4,096 a rank)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command
      ->add_option("--strategy", arguments->strategy,
                   "With its own settings after colons (default: the configuration's, or lrmoe). "
                   "There are: " +
                       join(plan::strategy_names()))
      ->type_name("NAME");
  add_selection_options(*command, arguments->selection);
  command
      ->add_option(
          "--memory", arguments->memory,
          "What a rank has for its MoE layers, as in 512MiB or 40GB: does it fit, how many "
          "tokens would, and what lrmoe's planner would give up (default: the "
          "configuration's [memory] budget)")
      ->type_name("BYTES");
  command
      ->add_option("--imbalance", arguments->imbalance,
                   "Assumed: pairs of the fullest expert over the mean (default: 1, even)")
      ->type_name("X");
  command
      ->add_option("--chunks", arguments->chunks,
                   "Parts of the tokens in which both passes run (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--layers-in-flight", arguments->layers,
                   "MoE layers whose memory counts (default: the model's)")
      ->type_name("N")
      ->check(CLI::Range(1, trace::kMostLayers));
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
