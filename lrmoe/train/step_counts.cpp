#include "lrmoe/train/step_counts.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace lrmoe::train {

void StepCounts::Pairs::operator+=(const Pairs& other) {
  routed += other.routed;
  retained += other.retained;
  dropped += other.dropped;
  forward += other.forward;
  forward_fullest += other.forward_fullest;
  backward_fullest += other.backward_fullest;
  predicted_variance += other.predicted_variance;
  plans += other.plans;
}

void StepCounts::Own::operator+=(const Own& other) {
  forward_bytes += other.forward_bytes;
  backward_bytes += other.backward_bytes;
  memory_bytes += other.memory_bytes;
  forward_seconds += other.forward_seconds;
  backward_seconds += other.backward_seconds;
  exchange_seconds += other.exchange_seconds;
  added_variance += other.added_variance;
  total_variance += other.total_variance;
  zero_pairs += other.zero_pairs;
}

StepCounts::Pairs StepCounts::count_pairs(const moe::MoeLayer& layer) {
  const auto fullest = [](const std::vector<std::int64_t>& loads) {
    return *std::max_element(loads.begin(), loads.end());
  };
  Pairs pairs;
  for (const plan::RankPlan& plan : layer.plans()) {
    pairs += {plan.routed,
              plan.retained,
              plan.dropped,
              plan.routed - plan.dropped,
              fullest(plan.forward_loads),
              fullest(plan.backward_loads),
              plan.added_variance,
              1};
  }
  return pairs;
}

StepCounts::Ranks StepCounts::count_ranks(
    const std::vector<std::vector<cost::LayerWork>>& micro_batches) {
  Ranks ranks(micro_batches.empty() ? 0 : micro_batches.front().size());
  for (const std::vector<cost::LayerWork>& micro : micro_batches) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const cost::LayerWork& work = micro[r];
      ranks[r] += {work.forward_bytes,   work.backward_bytes,   0,
                   work.forward_seconds, work.backward_seconds, work.exchange_seconds,
                   work.added_variance,  work.total_variance,   work.zero_pairs};
    }
  }
  return ranks;
}

void StepCounts::note_plans(const moe::MoeLayer& layer, int index) {
  for (const plan::RankPlan& plan : layer.plans()) {
    for (const std::string& text : plan.notes) {
      const LayerNote note{index, text};
      if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) {
        notes_.push_back(note);
      }
    }
  }
}

void StepCounts::add_memory(const moe::MoeLayer& layer, const plan::MemoryModel& model) {
  // One micro-batch after the other: their memory is the largest one's.
  const auto ranks = static_cast<std::size_t>(layer.cluster().ranks);
  replay::LayerMemory most{std::vector<plan::MemoryTerms>(ranks), std::vector<std::int64_t>(ranks)};
  for (const plan::Plan& plan : layer.whole_plans()) {
    const replay::LayerMemory memory = replay::memory_of(plan, model);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (memory.terms[r].total() > most.terms[r].total()) {
        most.terms[r] = memory.terms[r];
        most.kept[r] = memory.kept[r];
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    ranks_.back()[r].memory_bytes = most.terms[r].total();
  }
  memory_.add(most);
}

StepCounts::StepCounts(const model::Transformer& model, const GatheredWork& work,
                       const plan::MemoryModel& memory)
    : layer_index_(model.layer_of()), memory_(static_cast<int>(work.cpu.size())) {
  for (std::size_t i = 0; i < layer_index_.size(); ++i) {
    const moe::MoeLayer& layer = *model.moe_layers()[i];
    pairs_.push_back(count_pairs(layer));
    ranks_.push_back(count_ranks(work.layers[i]));
    note_plans(layer, layer_index_[i]);
    add_memory(layer, memory);
  }
}

void StepCounts::add_update(const optim::ExpertOptimizer& optimizer) {
  update_bytes_ += optimizer.bytes_sent();
  update_seconds_.push_back(optimizer.seconds());
}

MoeMetrics StepCounts::to_metrics(const Pairs& pairs, const Ranks& ranks) {
  const auto imbalance = [&](std::int64_t fullest, std::int64_t all) {
    return all == 0 ? 1.0
                    : static_cast<double>(fullest * static_cast<std::int64_t>(ranks.size())) /
                          static_cast<double>(all);
  };
  MoeMetrics metrics;
  Own sum;
  for (const Own& own : ranks) {
    sum += own;
    metrics.moe_forward_seconds = std::max(metrics.moe_forward_seconds, own.forward_seconds);
    metrics.moe_backward_seconds = std::max(metrics.moe_backward_seconds, own.backward_seconds);
    metrics.moe_exchange_seconds = std::max(metrics.moe_exchange_seconds, own.exchange_seconds);
    metrics.memory_peak_bytes = std::max(metrics.memory_peak_bytes, own.memory_bytes);
  }
  metrics.retained_ratio =
      pairs.routed == 0 ? 1.0
                        : static_cast<double>(pairs.retained) / static_cast<double>(pairs.routed);
  metrics.added_variance = sum.total_variance > 0 ? sum.added_variance / sum.total_variance : 0.0;
  metrics.predicted_variance = pairs.plans == 0 ? 0.0 : pairs.predicted_variance / pairs.plans;
  metrics.imbalance_forward = imbalance(pairs.forward_fullest, pairs.forward);
  metrics.imbalance_backward = imbalance(pairs.backward_fullest, pairs.retained);
  metrics.bytes_forward = sum.forward_bytes;
  metrics.bytes_backward = sum.backward_bytes;
  metrics.dropped_pairs = pairs.dropped;
  metrics.zero_pairs = sum.zero_pairs;
  return metrics;
}

void StepCounts::write_to(StepMetrics& metrics, comm::Communicator& communicator) const {
  Pairs pairs;
  Ranks whole(static_cast<std::size_t>(communicator.size()));
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    pairs += pairs_[i];
    for (std::size_t r = 0; r < whole.size(); ++r) {
      whole[r] += ranks_[i][r];
    }
  }
  // The layers' updates, then all of them together, whose slowest rank may be another one.
  std::vector<double> updates = update_seconds_;
  updates.push_back(std::accumulate(updates.begin(), updates.end(), 0.0));
  communicator.all_reduce(comm::view(std::span<double>(updates)), comm::Reduce::max);
  std::array<std::int64_t, 1> bytes = {update_bytes_};
  communicator.all_reduce(comm::view(std::span<std::int64_t>(bytes)), comm::Reduce::sum);

  metrics.moe = to_metrics(pairs, whole);
  metrics.moe.moe_update_seconds = updates.back();
  metrics.bytes_update = bytes[0];
  metrics.moe_seconds = metrics.moe.moe_forward_seconds + metrics.moe.moe_backward_seconds +
                        metrics.moe.moe_update_seconds;
  metrics.layer_index = layer_index_;
  double variance = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    metrics.layers.push_back(to_metrics(pairs_[i], ranks_[i]));
    metrics.layers.back().moe_update_seconds = updates[i];
    variance += metrics.layers.back().added_variance;
  }
  if (!pairs_.empty()) {
    // Each layer's by its own scores: their sizes differ from layer to layer.
    metrics.moe.added_variance = variance / static_cast<double>(pairs_.size());
    metrics.memory = plan::fullest(memory_.terms(1.0));
    metrics.moe.memory_peak_bytes = metrics.memory->total();
  }
  metrics.notes = notes_;
}

}  // namespace lrmoe::train
