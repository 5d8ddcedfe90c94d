// Whole experts for ranks that hubs fill up, where the backward pass of a pair runs
// at the instance of its forward pass (activation mode keep).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lrmoe/plan/hubs.h"

namespace lrmoe::plan {

/// A rank while a placement by hubs is formed.
struct HubRank {
  int group = -1;   // its hub; -1: none
  int parent = -1;  // a border: another hub that it also holds
  int hub_slots = 0;
  PhaseLoad target;  // of its whole experts
  PhaseLoad load;    // of its whole experts
  std::vector<int> whole;
};

/// Ranks times experts above which the search is cut short.
inline constexpr std::int64_t kLargeSearch = 4096;

/// Backward load per forward load of an expert, in kMeanLoad and at most kMostShare; the
/// mean where it has none.
inline constexpr std::int64_t kMostShare = kMeanLoad << 10;
inline std::int64_t kept_share(const PhaseLoad& weight) {
  return weight.forward > 0 ? std::min(weight.backward * kMeanLoad / weight.forward, kMostShare)
                            : kMeanLoad;
}

/// Swaps whole experts between ranks while the backward loads come nearer to their
/// mean. The forward pass decides what each hub brings to a rank: a tree of hubs
/// leaves it one way to be even. Of these pairs a hub keeps the share that it keeps
/// of all its pairs, and that is the rank's backward load. The squared distances of
/// the ranks' whole experts from their forward targets count 1 / `lean` as much.
/// Group 0 is the tree's root; of every other group k one rank is a border, with
/// group k and its parent, which has a lower number.
void fit_tied(std::span<HubRank> ranks, std::span<const PhaseLoad> weights, int hubs, int lean);

}  // namespace lrmoe::plan
