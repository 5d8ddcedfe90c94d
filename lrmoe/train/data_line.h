// One line of a .jsonl file of token ids.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lrmoe/train/data.h"

namespace lrmoe::train {

/// {"tokens": [ids]}, with "prompt": n (the first n tokens are not trained on) or "mask":
/// [0 or 1 for each token]; other keys are not looked at. InputError, beginning with
/// `where`, for anything else, for ids outside the vocabulary (0: they were checked
/// before), fewer than two tokens and a line without a trained token.
Sequence parse_line(std::string_view line, const std::string& where, int vocabulary);

/// The first `most` tokens; what is left may have no trained token.
void cut_sequence(Sequence& sequence, std::size_t most);

}  // namespace lrmoe::train
