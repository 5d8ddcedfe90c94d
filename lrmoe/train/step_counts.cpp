#include "lrmoe/train/step_counts.h"

#include <algorithm>
#include <array>

#include "lrmoe/plan/tables.h"

namespace lrmoe::train {

void StepCounts::Pairs::operator+=(const Pairs& other) {
  routed += other.routed;
  retained += other.retained;
  dropped += other.dropped;
  forward += other.forward;
  forward_fullest += other.forward_fullest;
  backward_fullest += other.backward_fullest;
  added_variance += other.added_variance;
  plans += other.plans;
}

void StepCounts::Own::operator+=(const Own& other) {
  forward_bytes += other.forward_bytes;
  backward_bytes += other.backward_bytes;
  memory_bytes += other.memory_bytes;
  forward_seconds += other.forward_seconds;
  backward_seconds += other.backward_seconds;
  exchange_seconds += other.exchange_seconds;
}

StepCounts::Pairs StepCounts::count_pairs(const moe::MoeLayer& layer) {
  const auto fullest = [](const plan::Split& split, int ranks) {
    const std::vector<std::int64_t> loads = plan::rank_loads(split, ranks);
    return *std::max_element(loads.begin(), loads.end());
  };
  Pairs pairs;
  for (const plan::Plan& plan : layer.plans()) {
    const std::int64_t routed = plan::total_pairs(plan.demand);
    const std::int64_t dropped = plan::total_pairs(plan.dropped);
    pairs += {routed,
              plan::total_pairs(plan.quota),
              dropped,
              routed - dropped,
              fullest(plan.forward, plan.cluster.ranks),
              fullest(plan.backward, plan.cluster.ranks),
              plan.added_variance,
              1};
  }
  return pairs;
}

StepCounts::Own StepCounts::count_own(const moe::MoeLayer& layer) {
  Own own;
  std::int64_t memory = 0;
  for (const auto& work : layer.work()) {
    own += {work->forward_bytes,   work->backward_bytes,   0,
            work->forward_seconds, work->backward_seconds, work->exchange_seconds};
    memory = std::max(memory, work->memory_peak_bytes);
  }
  own.memory_bytes = memory;
  return own;
}

StepCounts::StepCounts(const model::Transformer& model) : layer_index_(model.layer_of()) {
  for (const auto& layer : model.moe_layers()) {
    pairs_.push_back(count_pairs(*layer));
    own_.push_back(count_own(*layer));
  }
}

void StepCounts::add_update(const optim::ExpertOptimizer& optimizer) {
  update_bytes_ += optimizer.bytes_sent();
  update_seconds_ += optimizer.seconds();
}

MoeMetrics StepCounts::to_metrics(const Pairs& pairs, const Own& own, int ranks) {
  const auto imbalance = [&](std::int64_t fullest, std::int64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(fullest) * ranks / static_cast<double>(all);
  };
  MoeMetrics metrics;
  metrics.moe_forward_seconds = own.forward_seconds;
  metrics.moe_backward_seconds = own.backward_seconds;
  metrics.retained_ratio =
      pairs.routed == 0 ? 1.0
                        : static_cast<double>(pairs.retained) / static_cast<double>(pairs.routed);
  metrics.added_variance = pairs.plans == 0 ? 0.0 : pairs.added_variance / pairs.plans;
  metrics.imbalance_forward = imbalance(pairs.forward_fullest, pairs.forward);
  metrics.imbalance_backward = imbalance(pairs.backward_fullest, pairs.retained);
  metrics.bytes_forward = own.forward_bytes;
  metrics.bytes_backward = own.backward_bytes;
  metrics.dropped_pairs = pairs.dropped;
  metrics.memory_peak_bytes = own.memory_bytes;
  return metrics;
}

void StepCounts::reduce(std::vector<Own>& rows, comm::Communicator& communicator) {
  std::vector<std::int64_t> sums;
  std::vector<double> most;
  for (const Own& row : rows) {
    sums.insert(sums.end(), {row.forward_bytes, row.backward_bytes});
    most.insert(most.end(), {static_cast<double>(row.memory_bytes), row.forward_seconds,
                             row.backward_seconds, row.exchange_seconds});
  }
  communicator.all_reduce(comm::view(std::span<std::int64_t>(sums)), comm::Reduce::sum);
  communicator.all_reduce(comm::view(std::span<double>(most)), comm::Reduce::max);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {sums[2 * i],     sums[2 * i + 1], static_cast<std::int64_t>(most[4 * i]),
               most[4 * i + 1], most[4 * i + 2], most[4 * i + 3]};
  }
}

void StepCounts::write_to(StepMetrics& metrics, comm::Communicator& communicator) {
  Pairs pairs;
  Own whole;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    pairs += pairs_[i];
    whole += own_[i];
  }
  // The layers, then all of them together, whose slowest rank may be another one,
  // then the update.
  std::vector<Own> rows = own_;
  rows.push_back(whole);
  rows.push_back({update_bytes_, 0, 0, update_seconds_, 0, 0});
  reduce(rows, communicator);
  const int ranks = communicator.size();
  const Own update = rows.back();
  rows.pop_back();
  metrics.moe = to_metrics(pairs, rows.back(), ranks);
  metrics.moe_exchange_seconds = rows.back().exchange_seconds;
  metrics.moe_update_seconds = update.forward_seconds;
  metrics.bytes_update = update.forward_bytes;
  metrics.moe_seconds = metrics.moe.moe_forward_seconds + metrics.moe.moe_backward_seconds +
                        metrics.moe_update_seconds;
  metrics.layer_index = layer_index_;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    metrics.layers.push_back(to_metrics(pairs_[i], rows[i], ranks));
  }
}

}  // namespace lrmoe::train
