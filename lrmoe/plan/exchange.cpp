#include "lrmoe/plan/exchange.h"

#include <algorithm>

namespace lrmoe::plan {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr int kRounds = 8;
constexpr int kPartners = 16;           // ranks that an expert's pairs are offered to in a round
constexpr std::int64_t kLeastGain = 8;  // a round goes on if it took away 1/8 of what was above

}  // namespace

void Exchange::list(const InstanceIndex& index, std::span<const std::int64_t> share) {
  held_.clear();
  held_begin_.clear();
  for (std::int32_t r = 0; r < index.ranks; ++r) {
    held_begin_.push_back(static_cast<std::int32_t>(held_.size()));
    for (const std::int32_t i : index.on_rank(r)) {
      const std::int32_t e = index.expert[at(i)];
      if (index.count(e) > 1) {
        held_.push_back({i, e, share[at(e)]});
      }
    }
  }
  held_begin_.push_back(static_cast<std::int32_t>(held_.size()));
}

std::span<const Exchange::Held> Exchange::held(std::int32_t r) const {
  const auto begin = at(held_begin_[at(r)]);
  return std::span(held_).subspan(begin, at(held_begin_[at(r) + 1]) - begin);
}

std::int64_t Exchange::above(std::int64_t capacity) const {
  std::int64_t sum = 0;
  for (const std::int64_t kept : kept_) {
    sum += std::max<std::int64_t>(kept - capacity, 0);
  }
  return sum;
}

std::int64_t Exchange::run(const InstanceIndex& index, std::span<const std::int64_t> share,
                           std::int64_t capacity, int node_width, std::span<std::int64_t> loads) {
  kept_.assign(at(index.ranks), 0);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    kept_[at(index.rank[i])] += loads[i] * share[at(index.expert[i])];
  }
  std::int64_t before = above(capacity);
  if (before == 0) {
    return 0;
  }
  list(index, share);
  here_.assign(at(index.experts), -1);
  node_.resize(at(index.ranks));
  for (std::int32_t r = 0; r < index.ranks; ++r) {
    node_[at(r)] = r / node_width;
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::int32_t r = 0; r < index.ranks; ++r) {
      if (kept_[at(r)] > capacity && held(r).size() > 1) {
        relieve(index, capacity, r, round, loads);
      }
    }
    const std::int64_t after = above(capacity);
    if (after == 0 || before - after < before / kLeastGain) {
      return after;
    }
    before = after;
  }
  return before;
}

void Exchange::relieve(const InstanceIndex& index, std::int64_t capacity, std::int32_t r, int round,
                       std::span<std::int64_t> loads) {
  const std::span<const Held> own = held(r);
  std::int64_t least = own.front().share;
  for (const Held& h : own) {
    here_[at(h.expert)] = h.instance;
    least = std::min(least, h.share);
  }
  for (const Held& h : own) {
    std::int64_t& from = loads[at(h.instance)];
    const std::int32_t begin = index.begin[at(h.expert)];
    const std::int32_t count = index.begin[at(h.expert) + 1] - begin;
    // Others in every round.
    const std::int32_t start = round * kPartners % count;
    int partners = kPartners;
    for (std::int32_t n = 0; n < count && h.share > least && from > 0 && kept_[at(r)] > capacity;
         ++n) {
      const std::int32_t j = begin + (start + n < count ? start + n : start + n - count);
      const std::int32_t s = index.rank[at(j)];
      if (kept_[at(s)] >= kept_[at(r)] || node_[at(s)] != node_[at(r)]) {
        continue;
      }
      if (partners-- == 0) {
        break;
      }
      for (const Held& other : held(s)) {
        const std::int32_t back = here_[at(other.expert)];
        std::int64_t& there = loads[at(other.instance)];
        if (back < 0 || other.share >= h.share || there == 0) {
          continue;
        }
        const std::int64_t gain = h.share - other.share;
        const std::int64_t wanted =
            std::min(kept_[at(r)] - capacity, (kept_[at(r)] - kept_[at(s)]) / 2);
        const std::int64_t pairs = std::min({from, there, wanted / gain});
        if (pairs > 0) {
          from -= pairs;
          loads[at(j)] += pairs;
          there -= pairs;
          loads[at(back)] += pairs;
          kept_[at(r)] -= gain * pairs;
          kept_[at(s)] += gain * pairs;
        }
      }
    }
  }
  for (const Held& h : own) {
    here_[at(h.expert)] = -1;
  }
}

}  // namespace lrmoe::plan
