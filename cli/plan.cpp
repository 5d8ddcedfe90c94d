// lrmoe plan: plans one layer of a trace.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/clusters.h"
#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/plan/json.h"
#include "lrmoe/replay/plan_layer.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  std::string trace;
  int layer = 0;
  int step = 0;
  int placement_step = -1;
  int ranks = 8;
  int slots = 0;
  int ranks_per_node = 0;
  std::string strategy = "lrmoe";
  std::string model = "own";
  SelectionArguments selection;
  double scale = 1;
  int chunks = 1;
  std::int64_t seed = 1;
  std::string json;
};

void run(const Arguments& arguments) {
  check_json(arguments.json);
  check_scale(arguments.scale);
  const trace::Trace trace = trace::Trace::open(arguments.trace);
  const replay::Entry entry = parse_entry(base_config(arguments.selection), arguments.strategy);
  replay::PlanOptions options;
  options.ranks = arguments.ranks;
  options.slots = entry.slots > 0 ? entry.slots : arguments.slots;
  options.ranks_per_node = arguments.ranks_per_node;
  options.strategy = entry.options;
  options.chunks = entry.chunks > 0 ? entry.chunks : arguments.chunks;
  options.layer = arguments.layer;
  options.step = arguments.step;
  options.placement_step = arguments.placement_step;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.shape = find_model(arguments.model, own_shape(trace.info()));
  options.scale = arguments.scale;
  const replay::PlannedLayer planned = replay::plan_layer(trace, options);
  show(arguments.json, replay::to_text(planned, trace, options));
  const double seconds = planned.place_seconds + planned.route_seconds;
  write_json(arguments.json, plan::to_json(planned.plan, seconds).dump() + "\n");
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("plan", "Plan one layer of a routing trace");
  command->add_option("--trace", arguments->trace, "The trace, a safetensors file")
      ->type_name("FILE")
      ->required();
  command->add_option("--layer", arguments->layer, "Which MoE layer of the trace, from 0")
      ->type_name("L")
      ->required();
  command->add_option("--step", arguments->step, "Which step, from 0 (default: 0)")->type_name("S");
  command
      ->add_option("--placement-step", arguments->placement_step,
                   "On which step's demand the placement is planned (default: the step itself)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--strategy", arguments->strategy,
                   "With its own settings after colons (default: lrmoe). There are: " +
                       join(plan::strategy_names()))
      ->type_name("NAME");
  add_cluster_options(*command, arguments->ranks, arguments->slots);
  command
      ->add_option("--ranks-per-node", arguments->ranks_per_node,
                   "0, the default: all ranks in one node")
      ->type_name("N")
      ->check(CLI::Range(0, 65536));
  add_selection_options(*command, arguments->selection);
  add_model_option(*command, arguments->model, "own, those that the trace names");
  add_scale_options(*command, arguments->scale, arguments->chunks, arguments->seed);
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { run(*arguments); }; });
}

}  // namespace lrmoe::cli
