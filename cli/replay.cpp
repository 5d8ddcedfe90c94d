// lrmoe replay: a routing trace through strategies, on a cluster that need not exist.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/clusters.h"
#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/replay/report.h"
#include "lrmoe/train/compare.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string trace;
  int ranks = 8;
  int slots = 0;
  std::string strategies = "fixed,fixed:activations=recompute,symi,eplb,lrmoe:ratio=1,lrmoe";
  std::string model = "own";
  std::string profile = "h200-ib";
  int ranks_per_node = -1;
  SelectionArguments selection;
  std::string placement;
  std::int64_t tokens = 0;
  double scale = 1;
  int chunks = 1;
  std::string memory;
  int layers = 0;
  std::int64_t seed = 1;
  bool memory_table = false;
  std::string beside_table;  // the first option given that the memory table sets itself
  std::string json;
};

/// What the memory of `fixed` is compared with: both modes, in one go and in four.
std::vector<std::string> memory_table_strategies() {
  std::vector<std::string> specs;
  for (const char* strategy : {"fixed", "lrmoe:ratio=1", "lrmoe"}) {
    for (const char* activations : {"keep", "recompute"}) {
      for (const char* chunks : {"1", "4"}) {
        specs.push_back(std::string(strategy) + ":activations=" + activations +
                        ":chunks=" + chunks);
      }
    }
  }
  return specs;
}

void run(const Arguments& arguments) {
  check_json(arguments.json);
  if (!arguments.beside_table.empty()) {
    throw InputError("--memory-table has its own strategies, activations and chunks; leave out " +
                     arguments.beside_table);
  }
  check_scale(arguments.scale);
  const trace::Trace trace = trace::Trace::open(arguments.trace);
  const trace::Info& info = trace.info();
  replay::Options options;
  options.ranks = arguments.ranks;
  options.slots = arguments.slots;
  options.clock.profile = find_profile_option(arguments.profile);
  options.clock.shape = find_model(arguments.model, own_shape(info));
  options.clock.scale = arguments.scale;
  options.clock.ranks_per_node = arguments.ranks_per_node;
  options.tokens = arguments.tokens;
  options.placing = parse_placing(arguments.placement, info.steps);
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.chunks = arguments.chunks;
  options.layers_in_flight = arguments.layers;
  options.budget = arguments.memory.empty() ? 0 : parse_budget(arguments.memory);
  train::Config base = base_config(arguments.selection);
  base.clock.profile = arguments.profile;  // for targets that need to know what work costs
  const std::vector<std::string> specs = arguments.memory_table
                                             ? memory_table_strategies()
                                             : train::split_strategies(arguments.strategies);
  for (const std::string& spec : specs) {
    options.strategies.push_back(parse_entry(base, spec));
  }
  const replay::Report report = replay::replay(trace, options);
  show(arguments.json, replay::to_text(report));
  write_json(arguments.json, replay::to_json(report).dump() + "\n");
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "replay", "Run a routing trace through strategies: load, bytes, modelled time, memory");
  command->add_option("--trace", arguments->trace, "The trace, a safetensors file")
      ->type_name("FILE")
      ->required();
  add_cluster_options(*command, arguments->ranks, arguments->slots);
  command
      ->add_option("--strategies", arguments->strategies,
                   "Names with commas between, each with its own settings after colons, slots and "
                   "chunks among them: fixed,lrmoe:ratio=0.5:slots=6 (default: " +
                       arguments->strategies + "). There are: " + join(plan::strategy_names()))
      ->type_name("LIST");
  add_model_option(*command, arguments->model, "own, those that the trace names");
  command
      ->add_option(
          "--profile", arguments->profile,
          "The hardware: " + join(cost::profile_names()) + ", or a TOML file (default: h200-ib)")
      ->type_name("NAME");
  command
      ->add_option("--ranks-per-node", arguments->ranks_per_node,
                   "0: all in one node (default: the profile's)")
      ->type_name("N")
      ->check(CLI::Range(0, 65536));
  add_selection_options(*command, arguments->selection);
  command
      ->add_option("--placement", arguments->placement,
                   "Planned on the step before, next-step, or on the step itself, same-step "
                   "(default: next-step where the trace has several steps)")
      ->type_name("WHEN");
  command
      ->add_option("--tokens", arguments->tokens,
                   "Tokens a step over all ranks (default: as traced); more than were traced: they "
                   "repeat")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  add_scale_options(*command, arguments->scale, arguments->chunks, arguments->seed);
  command
      ->add_option("--memory", arguments->memory,
                   "What a rank has for the layers in flight, as in 512MiB or 40GB: lrmoe plans "
                   "within it")
      ->type_name("BUDGET");
  command
      ->add_option("--layers-in-flight", arguments->layers,
                   "MoE layers whose memory counts (default: the model's)")
      ->type_name("N")
      ->check(CLI::Range(1, trace::kMostLayers));
  command->add_flag("--memory-table", arguments->memory_table,
                    "In place of --strategies: fixed, lrmoe:ratio=1 and lrmoe, each with both "
                    "activation modes and in 1 and 4 chunks");
  add_json_option(*command, arguments->json);
  command->footer("`python -m lrmoe.report FILE` makes an HTML page of what --json wrote.");
  command->callback([arguments, command, &action] {
    for (const char* name : {"--strategies", "--activations", "--chunks"}) {
      if (arguments->memory_table && command->count(name) > 0 && arguments->beside_table.empty()) {
        arguments->beside_table = name;
      }
    }
    action = [arguments] { run(*arguments); };
  });
}

}  // namespace lrmoe::cli
