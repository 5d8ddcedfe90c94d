// The gradient audit: how far the gradients of a pass that keeps a part of the
// pairs (or drops some) are from those of the same tokens with every pair kept.
#pragma once

#include <functional>
#include <string>

#include "lrmoe/train/metrics.h"
#include "lrmoe/train/replica.h"

namespace lrmoe::train {

/// Compares the gradients that the model holds now with those that
/// `keep_all_pass` leaves, both summed over all ranks. It runs forward and
/// backward of the same tokens with StepInfo::keep_all. Afterwards the model holds
/// the gradients that it held before, bit by bit. Collective; the same numbers on
/// every rank.
Audit audit_gradients(Replica& replica, const std::function<void()>& keep_all_pass);

/// One line for the log: of each part the lowest cosine and the greatest relative
/// error of any layer.
std::string to_text(const Audit& audit);

}  // namespace lrmoe::train
