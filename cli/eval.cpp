// lrmoe eval: the loss, and on request the logits, of a trained model on given tokens.
#include "lrmoe/train/eval.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cli {
namespace {

struct Arguments {
  train::EvalOptions options;
  std::string json;
  std::string aux_loss_kind = "per-layer";
};

std::string to_json(const train::EvalOptions& options, const train::EvalResult& result) {
  using Json = nlohmann::ordered_json;
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  const Json json{
      {"format", "lrmoe-eval"},
      {"version", 1},
      {"checkpoint", result.checkpoint.string()},
      {"step", result.step},
      {"ranks", options.ranks},
      {"tokens", result.tokens},
      {"scored_tokens", result.scored},
      {"loss", number(result.loss)},
      {"perplexity", number(result.perplexity)},
      {"aux_loss", options.gradients.empty() ? Json(nullptr) : number(result.aux_loss)},
      {"gradients", options.gradients.empty() ? Json(nullptr) : Json(options.gradients.string())},
      {"logits", options.logits.empty() ? Json(nullptr) : Json(options.logits.string())}};
  return json.dump(2) + "\n";
}

std::string summary(const train::EvalResult& result) {
  char text[200];
  std::snprintf(
      text, sizeof text,
      "loss %.6f, perplexity %.4f, %lld tokens (%lld with a following token), step %lld\n",
      result.loss, result.perplexity, static_cast<long long>(result.tokens),
      static_cast<long long>(result.scored), static_cast<long long>(result.step));
  return text;
}

void run(const Arguments& arguments) {
  check_json(arguments.json);
  const train::EvalOptions& options = arguments.options;
  std::error_code ignored;
  for (const auto& [name, file] :
       {std::pair("--logits ", options.logits), std::pair("--gradients ", options.gradients)}) {
    if (std::filesystem::equivalent(options.tokens, file, ignored)) {
      throw InputError(name + quote(file.string()) + " is the file of --tokens; name another");
    }
  }
  const train::EvalResult result = train::evaluate(options);
  for (const std::string& notice : result.notices) {
    std::cerr << "lrmoe: " << notice << "\n";
  }
  show(arguments.json, summary(result));
  write_json(arguments.json, to_json(arguments.options, result));
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<Arguments>();
  train::EvalOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("eval", "Compute a trained model's loss and logits on given tokens");
  command
      ->add_option(
          "model", options.model,
          "A Hugging Face folder, a run folder (its newest checkpoint) or a checkpoint in it "
          "(step-N)")
      ->type_name("MODEL_DIR")
      ->required();
  command
      ->add_option("--tokens", options.tokens,
                   "Token ids, integers: one dimension is one long sequence, which is cut into "
                   "pieces of the model's sequence; two are a sequence per row. Every token's "
                   "target is the one that follows it")
      ->type_name("IDS.npy")
      ->required();
  command
      ->add_option("--logits", options.logits,
                   "Write the logits: fp32 [tokens, vocabulary], in the order of the tokens")
      ->type_name("OUT.npy");
  command
      ->add_option("--gradients", options.gradients,
                   "Write every parameter's gradient of the mean cross-entropy: fp32, under its "
                   "Hugging Face name")
      ->type_name("OUT.safetensors");
  command
      ->add_option("--aux-loss", options.aux_loss,
                   "Weight of the load loss in the gradients (default: 0)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--aux-loss-kind", arguments->aux_loss_kind,
                   "per-layer: each layer's, summed; transformers: one over all layers")
      ->check(CLI::IsMember({"per-layer", "transformers"}));
  command
      ->add_option("--dtype", options.dtype,
                   "Dtype of weights and matrix products of a Hugging Face model (default: as its "
                   "config.json says)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--ranks", options.ranks, "Ranks to spread the experts over (default: 1)")
      ->type_name("R")
      ->check(CLI::Range(1, 4096));
  add_json_option(*command, arguments->json);
  command->callback([arguments, &action] {
    arguments->options.aux_loss_kind = arguments->aux_loss_kind == "transformers"
                                           ? model::AuxLoss::transformers
                                           : model::AuxLoss::per_layer;
    action = [arguments] { run(*arguments); };
  });
}

}  // namespace lrmoe::cli
