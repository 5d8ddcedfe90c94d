// What the commands that need no cluster share: models, profiles, strategies and
// placements as their options name them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lrmoe/cost/shape.h"
#include "lrmoe/plan/options.h"
#include "lrmoe/replay/replay.h"
#include "lrmoe/train/config.h"

namespace lrmoe::cli {

/// `--ratio`, `--mode`, `--activations`: settings of every strategy that its own
/// settings override. Empty: the defaults.
struct SelectionArguments {
  std::string ratio, mode, activations;
};
void add_selection_options(CLI::App& command, SelectionArguments& arguments);

/// A configuration that `--strategies` starts from. InputError that names the option.
train::Config base_config(const SelectionArguments& arguments, const train::Config& start = {});

/// A strategy as `lrmoe compare` takes it, and with `slots=N` and `chunks=N` among its
/// settings.
replay::Entry parse_entry(const train::Config& base, const std::string& spec);

void add_cluster_options(CLI::App& command, int& ranks, int& slots);
void add_model_option(CLI::App& command, std::string& model, const std::string& otherwise);
void add_scale_options(CLI::App& command, double& scale, int& chunks, std::int64_t& seed);

/// Bytes that `--memory` names. InputError unless it is a size above 0.
std::int64_t parse_budget(const std::string& text);

/// InputError unless it is above 0 and at most a million.
void check_scale(double scale);

/// The dimensions that a trace names, in bf16.
cost::Shape own_shape(const trace::Info& info);

/// The dimensions that `--model` means: a name that `lrmoe::cost` knows, `own` (where
/// `own` has a width), a training configuration (.toml), a Hugging Face folder or its
/// config.json. InputError lists the names.
cost::Shape find_model(const std::string& name, const cost::Shape& own);

/// `--profile`: cost::find_profile with the option's name in messages.
cost::Profile find_profile_option(const std::string& name);

/// Next-step or same-step; empty: next-step where the trace has several steps.
replay::Placing parse_placing(const std::string& text, int steps);

}  // namespace lrmoe::cli
