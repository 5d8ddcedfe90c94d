#include "lrmoe/plan/memory.h"

#include <algorithm>

#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

/// Pairs and rows of one phase on every rank.
struct Traffic {
  std::vector<std::int64_t> pairs, received, sent;

  Traffic(const Plan& plan, const Split& split)
      : pairs(rank_loads(split, plan.cluster.ranks)),
        received(pairs.size(), 0),
        sent(pairs.size(), 0) {
    const int ranks = plan.cluster.ranks;
    Loads between(ranks, ranks);
    for (const Route& route : split) {
      between.at(route.source, route.rank) += route.pairs;
    }
    for (int s = 0; s < ranks; ++s) {
      std::int64_t all = 0;
      for (const std::int32_t demand : plan.demand.row(s)) {
        all += demand;
      }
      for (int r = 0; r < ranks; ++r) {
        const std::int64_t rows =
            expected_rows(all / plan.cluster.top_k, between.at(s, r), plan.cluster.top_k);
        sent[static_cast<std::size_t>(s)] += rows;
        received[static_cast<std::size_t>(r)] += rows;
      }
    }
  }
};

}  // namespace

std::int64_t expected_rows(std::int64_t tokens, std::int64_t pairs, int top_k) {
  if (pairs == 0) {
    return 0;
  }
  if (tokens == 0) {
    return pairs;
  }
  const double miss =
      1.0 - static_cast<double>(pairs) / (static_cast<double>(tokens) * static_cast<double>(top_k));
  double all_miss = 1.0;
  for (int k = 0; k < top_k; ++k) {
    all_miss *= std::max(0.0, miss);
  }
  const auto rows = static_cast<std::int64_t>(static_cast<double>(tokens) * (1.0 - all_miss));
  return std::min({rows + 1, tokens, pairs});
}

std::vector<MemoryTerms> memory_terms(const Plan& plan, const MemoryModel& model) {
  const Traffic forward(plan, plan.forward);
  const Traffic backward(plan, plan.backward);
  const bool again = model.activations == Activations::recompute && !plan.keep_all;
  const std::int64_t d = model.hidden;
  const std::int64_t n = model.width;
  const std::int64_t a = model.activation_bytes;
  std::vector<MemoryTerms> terms;
  for (int rank = 0; rank < plan.cluster.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto row = plan.placement.row(rank);
    const std::int64_t used =
        std::count_if(row.begin(), row.end(), [](std::int32_t e) { return e >= 0; });
    MemoryTerms t;
    t.weights = used * 3 * d * n * model.weight_bytes;
    t.gradients = t.weights;
    if (!again) {
      t.activations = (forward.received[r] * d + forward.pairs[r] * 2 * n) * a +
                      forward.pairs[r] * model.gate_bytes;
    }
    const std::int64_t received_x = again ? forward.received[r] : 0;
    const std::int64_t forward_buffers =
        (2 * forward.sent[r] + forward.received[r] + received_x) * d * a;
    const std::int64_t forward_work = forward.pairs[r] * (2 * d + n + (again ? 2 * n : 0)) * a;
    const std::int64_t backward_buffers =
        (2 + (again ? 1 : 0)) * (backward.sent[r] + backward.received[r]) * d * a;
    const std::int64_t backward_work =
        backward.pairs[r] * (3 * d + 4 * n + (again ? 2 * n : 0)) * a;
    const bool late = backward_buffers + backward_work > forward_buffers + forward_work;
    t.buffers = late ? backward_buffers : forward_buffers;
    t.workspace = late ? backward_work : forward_work;
    terms.push_back(t);
  }
  return terms;
}

MemoryTerms fullest(const std::vector<MemoryTerms>& terms) {
  const auto most = std::max_element(
      terms.begin(), terms.end(),
      [](const MemoryTerms& x, const MemoryTerms& y) { return x.total() < y.total(); });
  return most == terms.end() ? MemoryTerms{} : *most;
}

}  // namespace lrmoe::plan
