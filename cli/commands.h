// The commands of the `lrmoe` program, one file each. A command adds its options
// to the command line; when it was chosen, it leaves in `action` what to do.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace lrmoe::cli {

using Action = std::function<void()>;

void add_train(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_estimate(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

/// Adds `--json FILE`, which every command takes.
void add_json_option(CLI::App& command, std::string& file);

/// InputError where `file` cannot be written: asked before a long run, not after.
void check_json(const std::string& file);

/// Writes the document to `file`; "-" is standard output, empty is nowhere.
void write_json(const std::string& file, const std::string& document);

/// Shows text to the user: on standard output, or on standard error when that is
/// where the JSON goes.
void show(const std::string& json_file, const std::string& text);

/// "runs/NAME-20250131-235959": a folder that does not exist yet.
std::string new_run_folder(const std::string& name);

}  // namespace lrmoe::cli
