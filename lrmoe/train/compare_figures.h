// The figures of a comparison by name: means and ranges over seeds, and printing,
// all work from one list.
#pragma once

#include <vector>

#include "lrmoe/train/compare.h"

namespace lrmoe::train {

/// Calls visit(name, member) for every figure but against_symi.
template <class Figures, class Visit>
void visit_figures(Figures& f, Visit visit) {
  visit("steps", f.steps);
  visit("moe_seconds", f.moe_seconds);
  visit("moe_forward_seconds", f.moe_forward_seconds);
  visit("moe_backward_seconds", f.moe_backward_seconds);
  visit("moe_exchange_seconds", f.moe_exchange_seconds);
  visit("moe_update_seconds", f.moe_update_seconds);
  visit("total_seconds", f.total_seconds);
  visit("moe_seconds_per_step", f.moe_seconds_per_step);
  visit("measured_moe_seconds", f.measured_moe_seconds);
  visit("measured_total_seconds", f.measured_total_seconds);
  visit("added_variance", f.added_variance);
  visit("retained_ratio", f.retained_ratio);
  visit("final_loss", f.final_loss);
  visit("validation_loss", f.validation_loss);
  visit("memory_subtotal", f.memory_subtotal);
  visit("dropped_pairs", f.dropped_pairs);
}

/// Figure by figure; against_symi only where all have it. There must be some.
CompareFigures mean_of(const std::vector<CompareFigures>& runs);
CompareFigures least_of(const std::vector<CompareFigures>& runs);
CompareFigures most_of(const std::vector<CompareFigures>& runs);

}  // namespace lrmoe::train
