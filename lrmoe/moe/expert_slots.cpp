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

void ExpertSlots::reset(const plan::Placement& next) {
  placement = next;
  gate_up.mutable_grad() = at::Tensor();
  down.mutable_grad() = at::Tensor();
}

}  // namespace lrmoe::moe
