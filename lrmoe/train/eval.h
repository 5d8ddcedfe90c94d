// Evaluation of a trained model on given tokens: what `lrmoe eval` does. Free of
// torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lrmoe::train {

struct EvalOptions {
  /// A run folder (its newest checkpoint is taken) or a checkpoint `step-N`.
  std::filesystem::path model;
  /// A .npy file of token ids. One dimension: one long sequence, computed in
  /// pieces of the model's sequence; two: a sequence per row.
  std::filesystem::path tokens;
  std::filesystem::path logits;  // where to write fp32 [tokens, vocabulary]; empty: nowhere
  int ranks = 1;                 // threads; each holds ceil(E / ranks) experts at most
};

struct EvalResult {
  std::filesystem::path checkpoint;
  std::int64_t step = 0;    // of the checkpoint
  std::int64_t tokens = 0;  // put in
  std::int64_t scored = 0;  // those with a following token, which is their target
  double loss = 0;          // mean cross-entropy over them; dropless
  double perplexity = 0;    // e^loss
};

/// Errors: InputError of one line for a folder that is no run or checkpoint of
/// this program, or a damaged one, and for tokens that the model cannot take.
EvalResult evaluate(const EvalOptions& options);

}  // namespace lrmoe::train
