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

RankTrainer::RankTrainer(const Config& config, const plan::Strategy& strategy, const Data& data,
                         comm::Communicator& communicator, const model::HfWeights* weights)
    : config_(config),
      data_(data),
      replica_(config, strategy, communicator, weights),
      clock_(config) {}

StepMetrics RankTrainer::step() {
  const Stopwatch watch;
  const double rate = learning_rate(config_.train, replica_.steps);
  for (optim::ExpertOptimizer& optimizer : replica_.experts) {
    optimizer.begin_step();
  }
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
  metrics.trained_tokens = losses.trained;
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
  if (recording_) {
    recording_->end_step();
  }
  metrics.audit = losses.audit;
  metrics.seconds = watch.seconds() - (losses.audit ? losses.audit->seconds : 0.0);
  clock_.price(std::move(work), std::move(updates), metrics);
  return metrics;
}

RankTrainer::Losses RankTrainer::forward_backward() {
  const TrainConfig& train = config_.train;
  const std::int64_t count = batch_sequences();
  std::vector<std::int64_t> places;
  Losses losses;
  for (std::int64_t i = 0; i < count * train.accumulation; ++i) {
    places.push_back(data_.pick(train.seed, {replica_.steps, i, count * train.accumulation}));
    losses.trained += data_.size(places.back()).trained;
  }
  std::array<double, 2> sums = {0.0, 0.0};
  for (int m = 0; m < train.accumulation; ++m) {
    const Batch batch = own_batch(std::span<const std::int64_t>(places).subspan(
        static_cast<std::size_t>(m * count), static_cast<std::size_t>(count)));
    moe::StepInfo info{replica_.steps, m};
    info.zero_deltas = data_.masked();
    const CpuStopwatch cpu;
    const auto [cross_entropy, aux] = run_pass(batch, losses.trained, info);
    losses.cpu_seconds += cpu.seconds();
    sums[0] += cross_entropy;
    sums[1] += aux;
    if (m == 0 && audits_this_step()) {
      info.keep_all = true;
      losses.audit = audit_gradients(replica_, [&] { run_pass(batch, losses.trained, info); });
    }
  }
  sum_over_ranks(replica_.communicator, sums);
  losses.cross_entropy = sums[0] / static_cast<double>(losses.trained);
  losses.aux = sums[1] / train.accumulation;
  return losses;
}

std::pair<double, double> RankTrainer::run_pass(const Batch& batch, std::int64_t trained,
                                                const moe::StepInfo& info) {
  const TrainConfig& train = config_.train;
  const auto loss = replica_.model.loss(batch.tokens, batch.targets, info);
  const at::Tensor weighted = loss.cross_entropy / static_cast<double>(trained) +
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

Batch RankTrainer::own_batch(std::span<const std::int64_t> places) const {
  // As long on every rank, so that a model without drops is the same on any number of them.
  std::int64_t length = 1;
  for (const std::int64_t place : places) {
    length = std::max(length, data_.size(place).inputs);
  }
  const auto [begin, end] = share(static_cast<std::int64_t>(places.size()),
                                  replica_.communicator.rank(), replica_.communicator.size());
  return make_batch(
      data_, places.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
      length);
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
    const plan::Placement next = layer.finish_step();
    if (!replica_.places_in_step) {
      replica_.experts[i].deliver(next, layer.slots());
    }
  }
}

double RankTrainer::evaluate() {
  const at::NoGradGuard no_grad;
  const std::int64_t sequences = data_.held_out_count(config_.train.evaluate_tokens);
  std::array<double, 1> sum = {0.0};
  std::int64_t trained = 0;
  for (std::int64_t first = 0; first < sequences; first += batch_sequences()) {
    std::vector<std::int64_t> places;
    for (std::int64_t i = first; i < std::min(first + batch_sequences(), sequences); ++i) {
      places.push_back(data_.pick_held_out(i, sequences));
      trained += data_.size(places.back()).trained;
    }
    const Batch batch = own_batch(places);
    const auto loss = replica_.model.loss(batch.tokens, batch.targets, {replica_.steps, 0, true});
    sum[0] += loss.cross_entropy.item<double>();
  }
  sum_over_ranks(replica_.communicator, sum);
  return sum[0] / static_cast<double>(trained);
}

void RankTrainer::record() {
  if (!config_.trace.write.empty()) {
    recording_.emplace(config_, replica_);
  }
}

void RankTrainer::save(const std::filesystem::path& run_folder) {
  if (recording_) {
    recording_->sync();  // first: a checkpoint's steps are in the trace
  }
  save_checkpoint(replica_, config_, run_folder);
}

void RankTrainer::load(const Checkpoint& checkpoint) {
  load_checkpoint(replica_, config_, checkpoint);
}

}  // namespace lrmoe::train
