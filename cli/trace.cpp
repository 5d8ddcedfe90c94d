// lrmoe trace: makes, converts and describes routing traces.
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/trace/convert.h"
#include "lrmoe/trace/heat_map.h"
#include "lrmoe/trace/summary.h"
#include "lrmoe/trace/workloads.h"
#include "lrmoe/trace/writer.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  trace::WorkloadOptions workload;
  trace::ConvertOptions convert;
  std::string input;
  std::string output;
  std::string heat_map;
  int ranks = 0;
  std::string json;
};

/// What was written, in a line and as JSON.
void tell(const Arguments& arguments) {
  const trace::Trace trace = trace::Trace::open(arguments.output);
  const trace::Info& info = trace.info();
  const std::string shape = std::to_string(info.steps) + " x " + std::to_string(info.layers) +
                            " x " + std::to_string(trace.tokens(0, 0));
  show(arguments.json, arguments.output + ": " + shape + " (steps x layers x tokens), " +
                           std::to_string(info.experts) + " experts, top-" +
                           std::to_string(info.top_k) + "\n");
  if (!arguments.json.empty()) {
    write_json(arguments.json, trace::to_json(trace::summarise(trace, info.ranks)));
  }
}

void make(const Arguments& arguments) {
  check_json(arguments.json);
  trace::make_trace(arguments.workload, arguments.output);
  tell(arguments);
}

void convert(const Arguments& arguments) {
  check_json(arguments.json);
  std::error_code ignored;
  if (std::filesystem::equivalent(arguments.input, arguments.output, ignored)) {
    throw InputError("OUT " + quote(arguments.output) + " is the file to read; name another");
  }
  trace::write(arguments.output, trace::convert(arguments.input, arguments.convert));
  tell(arguments);
}

void info(const Arguments& arguments) {
  check_json(arguments.json);
  const trace::Trace trace = trace::Trace::open(arguments.input);
  if (!arguments.heat_map.empty()) {
    trace::check_heat_map(arguments.heat_map, trace.info());
  }
  const trace::Summary summary = trace::summarise(trace, arguments.ranks);
  if (!arguments.heat_map.empty()) {
    trace::write_heat_map(arguments.heat_map, summary);
  }
  show(arguments.json, trace::to_text(summary));
  write_json(arguments.json, trace::to_json(summary));
}

using Shared = std::shared_ptr<Arguments>;

void add_make(CLI::App& parent, const Shared& arguments, Action& action) {
  trace::WorkloadOptions& w = arguments->workload;
  CLI::App* command = parent.add_subcommand("make", "Generate a trace");
  command
      ->add_option(
          "--workload", w.name,
          "One of " + join(trace::workload_names()) + ", or P:N, P% of the tokens to N experts")
      ->type_name("NAME")
      ->required();
  const auto number = [&](const char* name, auto& value, const char* what, const char* type) {
    command->add_option(name, value, what)->type_name(type)->capture_default_str();
  };
  number("--experts", w.experts, "Experts of a layer", "E");
  number("--top-k", w.top_k, "Experts of a token", "K");
  number("--tokens", w.tokens, "Tokens of a step, over all ranks", "T");
  command->add_option("--seed", w.seed, "Of the random numbers")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
  number("--steps", w.steps, "Steps", "N");
  number("--layers", w.layers, "MoE layers", "N");
  number("--ranks", w.ranks, "Write which of R ranks each token comes from (0: do not)", "R");
  number("--exponent", w.exponent, "zipf: the i-th expert is chosen as i^-X", "X");
  number("--max-mean", w.max_mean, "lognormal, drift: the fullest expert's load over the mean",
         "X");
  number("--drift", w.drift, "drift: the share of popularity that is new in each step, 0 to 1",
         "X");
  command->add_option("--output", arguments->output, "The trace to write")
      ->type_name("FILE")
      ->required();
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { make(*arguments); }; });
}

void add_convert(CLI::App& parent, const Shared& arguments, Action& action) {
  trace::ConvertOptions& c = arguments->convert;
  CLI::App* command = parent.add_subcommand(
      "convert", "Convert JSON lines or a text table of ids and gates (docs/traces.md)");
  command
      ->add_option("input", arguments->input,
                   "JSON lines, a table, or a folder of tables, one a layer")
      ->type_name("IN")
      ->required();
  command->add_option("output", arguments->output, "The trace to write")
      ->type_name("OUT")
      ->required();
  command->add_option("--model", c.model, "The model's name, for the trace")->type_name("NAME");
  command->add_option("--experts", c.experts, "Experts of a layer (default: the largest id + 1)")
      ->type_name("E")
      ->check(CLI::Range(1, trace::kMostExperts));
  command->add_option("--hidden", c.hidden, "The model's hidden size")
      ->type_name("D")
      ->check(CLI::Range(1, trace::kMostWidth));
  command->add_option("--expert-width", c.expert_width, "The experts' width")
      ->type_name("N")
      ->check(CLI::Range(1, trace::kMostWidth));
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { convert(*arguments); }; });
}

void add_info(CLI::App& parent, const Shared& arguments, Action& action) {
  CLI::App* command = parent.add_subcommand("info", "Describe a trace, layer by layer");
  command->add_option("trace", arguments->input, "A routing trace")->type_name("FILE")->required();
  command->add_option("--ranks", arguments->ranks, "Also the load of R ranks, each owning E / R")
      ->type_name("R")
      ->check(CLI::Range(1, trace::kMostRanks));
  command
      ->add_option("--heat-map", arguments->heat_map,
                   "Draw layers by experts, as FILE.png or FILE.html")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] { action = [arguments] { info(*arguments); }; });
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("trace", "Make, convert and describe routing traces");
  command->require_subcommand(1);
  add_make(*command, std::make_shared<Arguments>(), action);
  add_convert(*command, std::make_shared<Arguments>(), action);
  add_info(*command, std::make_shared<Arguments>(), action);
}

}  // namespace lrmoe::cli
