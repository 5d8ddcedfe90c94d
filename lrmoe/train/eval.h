// Evaluation of a trained model on given tokens: what `lrmoe eval` does. Free of
// torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lrmoe/model/config.h"

namespace lrmoe::train {

struct EvalOptions {
  /// A Hugging Face folder, a run folder (its newest checkpoint is taken) or a
  /// checkpoint `step-N`.
  std::filesystem::path model;
  /// A .npy file of token ids. One dimension: one long sequence, computed in
  /// pieces of the model's sequence (2048 of a Hugging Face model that takes more);
  /// two: a sequence per row.
  std::filesystem::path tokens;
  std::filesystem::path logits;  // where to write fp32 [tokens, vocabulary]; empty: nowhere
  /// Where to write the gradient, in fp32, of the mean cross-entropy plus aux_loss
  /// times the load loss, for every parameter: a safetensors file with Hugging Face's
  /// names (our own for our own models). Empty: nowhere.
  std::filesystem::path gradients;
  double aux_loss = 0;
  model::AuxLoss aux_loss_kind = model::AuxLoss::per_layer;
  /// "float32" or "bfloat16"; empty: as config.json says (float16 is computed in
  /// float32). Hugging Face folders only.
  std::string dtype;
  int ranks = 1;  // threads; each holds ceil(E / ranks) experts at most
};

struct EvalResult {
  std::filesystem::path checkpoint;  // the checkpoint or the Hugging Face folder
  std::int64_t step = 0;             // of the checkpoint
  std::int64_t tokens = 0;           // put in
  std::int64_t scored = 0;           // those with a following token, which is their target
  double loss = 0;                   // mean cross-entropy over them; dropless
  double perplexity = 0;             // e^loss
  double aux_loss = 0;               // the load loss by itself; with `gradients` only
  std::vector<std::string> notices;
};

/// Errors: InputError of one line for a folder that is none of these, or a
/// damaged one, and for tokens that the model cannot take.
EvalResult evaluate(const EvalOptions& options);

}  // namespace lrmoe::train
