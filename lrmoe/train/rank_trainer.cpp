#include "lrmoe/train/rank_trainer.h"

#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "lrmoe/base/stopwatch.h"
#include "lrmoe/train/audit.h"
#include "lrmoe/train/checkpoint.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/schedule.h"
#include "lrmoe/train/step_counts.h"

namespace lrmoe::train {

namespace {

void sum_over_ranks(comm::Communicator& communicator, std::span<double> values) {
  communicator.all_reduce(comm::view(values), comm::Reduce::sum);
}

[[noreturn]] void stop_diverged(const std::string& what, std::int64_t step) {
  throw RunError(what + " is not finite at step " + std::to_string(step) +
                 "; try a lower train.learning_rate, a longer train.warmup or train.clip = 1");
}

}  // namespace

RankTrainer::RankTrainer(const Config& config, const plan::Strategy& strategy, const Text& text,
                         comm::Communicator& communicator)
    : config_(config), text_(text), replica_(config, strategy, communicator), clock_(config) {}

StepMetrics RankTrainer::step() {
  const Stopwatch watch;
  const double rate = learning_rate(config_.train, replica_.steps);
  const Losses losses = forward_backward();
  if (!std::isfinite(losses.cross_entropy)) {
    stop_diverged("the loss", replica_.steps + 1);
  }
  const double norm = reduce_gradients();
  if (!std::isfinite(norm)) {
    stop_diverged("the gradient's norm", replica_.steps + 1);
  }
  const double coefficient = clip(norm);
  CpuSeconds cpu = update(rate);
  cpu.passes = losses.cpu_seconds;
  StepMetrics metrics;
  metrics.step = replica_.steps + 1;
  metrics.loss = losses.cross_entropy;
  metrics.aux_loss = losses.aux;
  metrics.lr = rate;
  metrics.grad_norm = norm;
  metrics.clip_coefficient = coefficient;
  metrics.tokens = config_.train.tokens_per_step;
  // Before the layers forget the step.
  GatheredWork work = gather_work(replica_.model, cpu, replica_.communicator);
  StepCounts counts(replica_.model, work, memory_model(config_));
  std::vector<cost::OptimizerWork> updates = optimizer_work(replica_, work);
  move_experts();
  add_next_instances(updates, replica_);
  for (const optim::ExpertOptimizer& optimizer : replica_.experts) {
    counts.add_update(optimizer);
  }
  counts.write_to(metrics, replica_.communicator);
  ++replica_.steps;
  metrics.audit = losses.audit;
  metrics.seconds = watch.seconds() - (losses.audit ? losses.audit->seconds : 0.0);
  clock_.price(std::move(work), std::move(updates), metrics);
  return metrics;
}

RankTrainer::Losses RankTrainer::forward_backward() {
  const TrainConfig& train = config_.train;
  const std::int64_t count = batch_sequences();
  std::array<double, 2> sums = {0.0, 0.0};
  std::optional<Audit> audit;
  double cpu_seconds = 0;
  for (int m = 0; m < train.accumulation; ++m) {
    const std::int64_t first = m * count;
    const auto [begin, end] = own_share(first, count);
    const Batch batch = make_batch(begin, end, config_.model.sequence, [&](std::int64_t i) {
      return text_.batch(train.seed, replica_.steps, i);
    });
    const CpuStopwatch cpu;
    const auto [cross_entropy, aux] = run_pass(batch, {replica_.steps, m});
    cpu_seconds += cpu.seconds();
    sums[0] += cross_entropy;
    sums[1] += aux;
    if (m == 0 && audits_this_step()) {
      audit = audit_gradients(replica_, [&] {
        run_pass(batch, {replica_.steps, m, false, /*keep_all=*/true});
      });
    }
  }
  sum_over_ranks(replica_.communicator, sums);
  return {sums[0] / static_cast<double>(train.tokens_per_step), sums[1] / train.accumulation, audit,
          cpu_seconds};
}

std::pair<double, double> RankTrainer::run_pass(const Batch& batch, const moe::StepInfo& info) {
  const TrainConfig& train = config_.train;
  const auto loss = replica_.model.loss(batch.tokens, batch.targets, info);
  const at::Tensor weighted = loss.cross_entropy / static_cast<double>(train.tokens_per_step) +
                              loss.aux * (train.aux_loss / train.accumulation);
  weighted.backward();
  return {loss.cross_entropy.item<double>(), loss.aux.item<double>()};
}

bool RankTrainer::audits_this_step() const {
  const std::int64_t every = config_.lrmoe.audit_every;
  return every > 0 && (replica_.steps + 1) % every == 0;
}

std::int64_t RankTrainer::batch_sequences() const {
  return config_.train.tokens_per_step / config_.model.sequence / config_.train.accumulation;
}

std::pair<std::int64_t, std::int64_t> RankTrainer::own_share(std::int64_t first,
                                                             std::int64_t count) const {
  const auto [begin, end] =
      share(count, replica_.communicator.rank(), replica_.communicator.size());
  return {first + begin, first + end};
}

double RankTrainer::reduce_gradients() {
  replica_.dense.reduce(replica_.communicator);
  std::array<double, 1> square = {0.0};
  for (std::size_t i = 0; i < replica_.experts.size(); ++i) {
    replica_.experts[i].reduce(replica_.model.moe_layers()[i]->slots());
    square[0] += replica_.experts[i].gradient_square();
  }
  sum_over_ranks(replica_.communicator, square);
  return std::sqrt(square[0] + replica_.dense.gradient_square());
}

double RankTrainer::clip(double norm) {
  const double limit = config_.train.clip;
  if (limit <= 0.0 || norm <= limit) {
    return 1.0;
  }
  const double coefficient = limit / norm;
  replica_.dense.scale_gradient(coefficient);
  for (optim::ExpertOptimizer& optimizer : replica_.experts) {
    optimizer.scale_gradient(coefficient);
  }
  return coefficient;
}

CpuSeconds RankTrainer::update(double rate) {
  const TrainConfig& train = config_.train;
  const optim::AdamWOptions options{rate, train.beta1, train.beta2, 1e-8, train.weight_decay};
  CpuSeconds cpu;
  const CpuStopwatch dense;
  replica_.dense.step(replica_.steps + 1, options);
  cpu.dense_update = dense.seconds();
  for (optim::ExpertOptimizer& optimizer : replica_.experts) {
    const CpuStopwatch watch;
    optimizer.step(replica_.steps + 1, options);
    cpu.expert_update.push_back(watch.seconds());
  }
  return cpu;
}

void RankTrainer::move_experts() {
  for (std::size_t i = 0; i < replica_.experts.size(); ++i) {
    moe::MoeLayer& layer = *replica_.model.moe_layers()[i];
    replica_.last_demand[i] = layer.step_demand();
    replica_.experts[i].deliver(layer.finish_step(), layer.slots());
  }
}

double RankTrainer::evaluate() {
  const at::NoGradGuard no_grad;
  const std::int64_t sequences = text_.held_out_count(config_.train.evaluate_tokens);
  std::array<double, 1> sum = {0.0};
  for (std::int64_t first = 0; first < sequences; first += batch_sequences()) {
    const auto [begin, end] = own_share(first, std::min(batch_sequences(), sequences - first));
    const Batch batch = make_batch(begin, end, config_.model.sequence, [&](std::int64_t i) {
      return text_.held_out_sequence(i, sequences);
    });
    const auto loss = replica_.model.loss(batch.tokens, batch.targets, {replica_.steps, 0, true});
    sum[0] += loss.cross_entropy.item<double>();
  }
  sum_over_ranks(replica_.communicator, sum);
  return sum[0] / static_cast<double>(sequences * config_.model.sequence);
}

void RankTrainer::save(const std::filesystem::path& run_folder) {
  save_checkpoint(replica_, config_, run_folder);
}

void RankTrainer::load(const Checkpoint& checkpoint) {
  load_checkpoint(replica_, config_, checkpoint);
}

}  // namespace lrmoe::train
