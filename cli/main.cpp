// The `lrmoe` program: finds the command, runs it, and turns what goes wrong into
// one line on standard error and an exit status (0 done, 1 the run failed, 2
// wrong usage or input).
#include <algorithm>
#include <csignal>
#include <iostream>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

enum Status : int { done = 0, failed = 1, wrong_usage = 2 };

int complain(const std::string& message, Status status) {
  std::cerr << "lrmoe: " << one_line(message, 4000) << std::endl;
  return status;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The command (or the command's own, as in `trace info`) that was chosen, or the
/// program itself.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.front());
}

/// "trace info"
std::string name_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  const bool nested = parent != nullptr && parent->get_parent() != nullptr;
  return (nested ? name_of(*parent) + " " : "") + command.get_name();
}

/// What CLI11 says, in one line, with the nearest option where one is unknown.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  const bool whole = &command == &app;
  const std::string where = whole ? "" : name_of(command) + ": ";
  const std::string help = "; see lrmoe " + (whole ? "" : name_of(command) + " ") + "--help";
  const std::vector<std::string> extras = app.remaining(true);
  const bool unknown_words = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!unknown_words || extras.empty()) {
    return where + error.what() + help;
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      options.push_back("--" + name);
    }
  }
  const auto is_option = [](const std::string& extra) { return extra.starts_with("-"); };
  const auto unknown = std::find_if(extras.begin(), extras.end(), is_option);
  if (unknown == extras.end()) {
    return where + "unexpected argument " + quote(extras.front()) + help;
  }
  const std::string option = unknown->substr(0, unknown->find('='));
  return where + "unknown option " + quote(option) + suggestion(option, options);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(
      "LRMoE trains Mixture-of-Experts language models and compares how their experts "
      "are placed and trained.",
      "lrmoe");
  app.set_version_flag("--version", std::string("lrmoe ") + kVersion);
  app.require_subcommand(0, 1);
  Action action;
  add_train(app, action);
  add_compare(app, action);
  add_eval(app, action);
  add_plan(app, action);
  add_replay(app, action);
  add_estimate(app, action);
  add_trace(app, action);
  add_inspect(app, action);
  add_export(app, action);
  add_bench(app, action);

  const std::vector<std::string> names = command_names(app);
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    return complain("unknown command " + quote(argv[1]) + suggestion(argv[1], names), wrong_usage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return complain(explain(app, error), wrong_usage);
  }
  if (!action) {
    return complain("no command; there are: " + join(names) + "; see lrmoe --help", wrong_usage);
  }
  action();
  if (!std::cout.flush()) {
    return complain("cannot write standard output", failed);
  }
  return done;
}

/// The first line: libraries add a stack trace below it.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

int guarded(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const InputError& error) {
    return complain(error.what(), wrong_usage);
  } catch (const Error& error) {
    return complain(error.what(), failed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", failed);
  } catch (const std::exception& error) {
    return complain(first_line(error.what()), failed);
  }
}

}  // namespace
}  // namespace lrmoe::cli

int main(int argc, char** argv) {
  // A file that grows over a limit and a reader that went away are errors of the
  // write, to be told in one line, not reasons to die.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  return lrmoe::cli::guarded(argc, argv);
}
