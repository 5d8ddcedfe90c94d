#include "lrmoe/train/step_work.h"

#include <algorithm>
#include <array>
#include <bit>

#include "lrmoe/plan/curve.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::train {
namespace {

std::int64_t bits(double x) {
  return std::bit_cast<std::int64_t>(x);
}
double real(std::int64_t x) {
  return std::bit_cast<double>(x);
}

std::vector<std::int64_t> pack_rank(const model::Transformer& model, const CpuSeconds& cpu) {
  std::vector<cost::LayerWork> works;
  for (const auto& layer : model.moe_layers()) {
    for (const auto& work : layer->work()) {
      works.push_back(*work);
    }
  }
  std::vector<std::int64_t> words = {bits(cpu.passes), bits(cpu.dense_update)};
  for (const double seconds : cpu.expert_update) {
    words.push_back(bits(seconds));
  }
  const std::vector<std::int64_t> packed = cost::pack(works);
  words.insert(words.end(), packed.begin(), packed.end());
  return words;
}

}  // namespace

double GatheredWork::rest_cpu_seconds() const {
  double longest = 0;
  for (std::size_t r = 0; r < cpu.size(); ++r) {
    double seconds = cpu[r].passes + cpu[r].dense_update;
    for (const auto& layer : layers) {
      for (const auto& micro : layer) {
        seconds -= micro[r].forward_cpu_seconds + micro[r].backward_cpu_seconds;
      }
    }
    longest = std::max(longest, seconds);
  }
  return longest;
}

GatheredWork gather_work(const model::Transformer& model, const CpuSeconds& cpu,
                         comm::Communicator& communicator) {
  const std::size_t layers = model.moe_layers().size();
  LRMOE_ASSERT(cpu.expert_update.size() == layers, "an update's seconds for every MoE layer");
  std::vector<std::int64_t> own = pack_rank(model, cpu);
  std::array<std::int64_t, 1> length = {static_cast<std::int64_t>(own.size())};
  communicator.all_reduce(comm::view(std::span<std::int64_t>(length)), comm::Reduce::max);
  const auto width = static_cast<std::size_t>(length[0]);
  own.resize(width, 0);
  std::vector<std::int64_t> all(width * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(comm::view(std::span<const std::int64_t>(own)),
                          comm::view(std::span<std::int64_t>(all)));

  GatheredWork gathered;
  std::vector<std::vector<cost::LayerWork>> ranks;
  for (int r = 0; r < communicator.size(); ++r) {
    const std::span<const std::int64_t> words(all.data() + width * static_cast<std::size_t>(r),
                                              width);
    CpuSeconds& seconds = gathered.cpu.emplace_back();
    seconds.passes = real(words[0]);
    seconds.dense_update = real(words[1]);
    for (std::size_t l = 0; l < layers; ++l) {
      seconds.expert_update.push_back(real(words[2 + l]));
    }
    ranks.push_back(cost::unpack(words.subspan(2 + layers)));
  }
  if (layers > 0) {
    gathered.layers =
        cost::by_layer(ranks, static_cast<int>(model.moe_layers().front()->work().size()));
  }
  return gathered;
}

std::vector<cost::OptimizerWork> optimizer_work(const Replica& replica, const GatheredWork& work) {
  std::vector<cost::OptimizerWork> out;
  for (std::size_t i = 0; i < replica.experts.size(); ++i) {
    moe::MoeLayer& layer = *replica.model.moe_layers()[i];
    cost::OptimizerWork& optimizer = out.emplace_back();
    optimizer.experts = layer.cluster().experts;
    optimizer.owned = replica.strategy.owns_experts();
    optimizer.trained = replica.experts[i].trained();
    optimizer.instances = plan::used_slots(layer.slots().placement);
    for (const CpuSeconds& cpu : work.cpu) {
      optimizer.cpu_seconds.push_back(cpu.expert_update[i]);
    }
    const auto& plans = layer.plans();
    if (std::any_of(plans.begin(), plans.end(),
                    [](const plan::RankPlan& p) { return !p.keep_all || p.score; })) {
      optimizer.score_bytes = static_cast<std::int64_t>(layer.curves().state().size_bytes());
    }
  }
  return out;
}

void add_next_instances(std::vector<cost::OptimizerWork>& work, const Replica& replica) {
  for (std::size_t i = 0; i < work.size(); ++i) {
    // In-step, the weights go when the next step's demand is known: LayerWork has that.
    work[i].next_instances =
        replica.places_in_step ? std::vector<std::int32_t>(work[i].instances.size(), 0)
                               : plan::used_slots(replica.model.moe_layers()[i]->slots().placement);
  }
}

}  // namespace lrmoe::train
