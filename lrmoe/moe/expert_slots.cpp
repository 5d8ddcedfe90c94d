#include "lrmoe/moe/expert_slots.h"

namespace lrmoe::moe {

int ExpertSlots::slot_of(std::int32_t expert) const {
  const auto mine = placement.row(rank);
  for (std::size_t s = 0; s < mine.size(); ++s) {
    if (mine[s] == expert) {
      return static_cast<int>(s);
    }
  }
  return -1;
}

std::vector<int> ExpertSlots::instances(int of_rank) const {
  const auto row = placement.row(of_rank);
  std::vector<int> slots;
  for (std::size_t s = 0; s < row.size(); ++s) {
    const bool first = std::find(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(s),
                                 row[s]) == row.begin() + static_cast<std::ptrdiff_t>(s);
    if (row[s] >= 0 && first) {
      slots.push_back(static_cast<int>(s));
    }
  }
  return slots;
}

std::int64_t ExpertSlots::used() const {
  const auto row = placement.row(rank);
  const auto last = std::find_if(row.rbegin(), row.rend(), [](std::int32_t e) { return e >= 0; });
  return row.rend() - last;
}

void ExpertSlots::reset(const plan::Placement& next) {
  placement = next;
  for (at::Tensor* weight : {&gate_up, &down}) {
    weight->mutable_grad() = at::Tensor();
    if (weight->size(0) != used()) {
      std::vector<std::int64_t> shape = weight->sizes().vec();
      shape[0] = used();
      *weight = at::zeros(shape, weight->options()).requires_grad_();
    }
  }
}

}  // namespace lrmoe::moe
