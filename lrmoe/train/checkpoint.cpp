#include "lrmoe/train/checkpoint.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "lrmoe/base/names.h"
#include "lrmoe/train/checkpoint_state.h"
#include "lrmoe/train/checkpoint_tensors.h"
#include "lrmoe/train/config_fields.h"

namespace lrmoe::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";

std::string experts_file(int rank, int ranks) {
  return "experts-" + std::to_string(rank) + "-of-" + std::to_string(ranks) + ".safetensors";
}

std::vector<NamedTensor> model_tensors(const Replica& replica) {
  std::vector<NamedTensor> tensors;
  const DenseOptimizer& dense = replica.dense;
  std::size_t i = 0;  // the optimizer has those that are trained, in the same order
  for (const model::Parameter& parameter : replica.model.parameters()) {
    tensors.emplace_back(parameter.name, parameter.value.detach());
    if (i < dense.parameters().size() && dense.parameters()[i].name == parameter.name) {
      tensors.emplace_back(parameter.name + ".moment", dense.part(dense.moment, i));
      tensors.emplace_back(parameter.name + ".square", dense.part(dense.square, i));
      ++i;
    }
  }
  for (std::size_t l = 0; l < replica.model.moe_layers().size(); ++l) {
    const at::Tensor& bias = replica.model.moe_layers()[l]->router_bias;
    if (bias.defined()) {
      tensors.emplace_back("layers." + std::to_string(replica.model.layer_of()[l]) + ".router_bias",
                           bias);
    }
  }
  return tensors;
}

// Copies of the layers' score curves: what strategies that sample buy pairs by. They
// are of all ranks together, so they fit any number of ranks.
std::vector<NamedTensor> curve_tensors(const Replica& replica) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < replica.model.moe_layers().size(); ++i) {
    const auto state = replica.model.moe_layers()[i]->curves().state();
    tensors.emplace_back("layers." + std::to_string(replica.model.layer_of()[i]) + ".score_curves",
                         at::tensor(at::ArrayRef<std::int64_t>(state.data(), state.size())));
  }
  return tensors;
}

std::vector<NamedTensor> expert_tensors(const Replica& replica) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < replica.experts.size(); ++i) {
    const optim::ExpertOptimizer& optimizer = replica.experts[i];
    const std::string name = "layers." + std::to_string(replica.model.layer_of()[i]) + ".experts.";
    tensors.emplace_back(name + "master", optimizer.master);
    if (optimizer.trained()) {
      tensors.emplace_back(name + "moment", optimizer.moment);
      tensors.emplace_back(name + "square", optimizer.square);
    }
  }
  return tensors;
}

// What the file of one rank says of itself: the ShardMap and whose part it is.
safetensors::Metadata experts_metadata(const optim::ShardMap& map, int rank, std::int64_t step) {
  return {{"format", "lrmoe-experts"},
          {"step", std::to_string(step)},
          {"rank", std::to_string(rank)},
          {"ranks", std::to_string(map.ranks)},
          {"experts", std::to_string(map.experts)},
          {"length", std::to_string(map.length)},
          {"owned", map.owned ? "true" : "false"}};
}

safetensors::Metadata model_metadata(std::int64_t step) {
  return {{"format", "lrmoe-model"}, {"step", std::to_string(step)}};
}

CheckpointState state_of(const Replica& replica, const Config& config) {
  CheckpointState state;
  state.step = replica.steps;
  state.config = to_toml(config);
  state.strategy = replica.strategy.name();
  state.owned = replica.strategy.owns_experts();
  state.cluster = {replica.communicator.size(), config.model.experts, config.slots(),
                   config.model.top_k, 0};
  for (std::size_t i = 0; i < replica.experts.size(); ++i) {
    state.layers.push_back(
        {replica.model.moe_layers()[i]->slots().placement, replica.last_demand[i]});
  }
  return state;
}

// Where each expert's range begins in a rank's flat tensors.
std::vector<std::int64_t> offsets(const optim::ShardMap& map, int rank) {
  std::vector<std::int64_t> begins;
  std::int64_t sum = 0;
  for (int e = 0; e < map.experts; ++e) {
    const auto [begin, end] = map.range(rank, e);
    begins.push_back(sum);
    sum += end - begin;
  }
  return begins;
}

// An expert's elements that two ranks' shards have in common.
struct Overlap {
  std::int64_t source = 0;  // where they begin in the old rank's flat tensors
  std::int64_t target = 0;  // and in the new rank's
  std::int64_t count = 0;
};

std::vector<Overlap> overlaps(const optim::ShardMap& old_map, int old_rank,
                              const optim::ShardMap& new_map, int new_rank) {
  const std::vector<std::int64_t> sources = offsets(old_map, old_rank);
  const std::vector<std::int64_t> targets = offsets(new_map, new_rank);
  std::vector<Overlap> found;
  for (int e = 0; e < new_map.experts; ++e) {
    const auto [old_begin, old_end] = old_map.range(old_rank, e);
    const auto [new_begin, new_end] = new_map.range(new_rank, e);
    const std::int64_t begin = std::max(old_begin, new_begin);
    const std::int64_t end = std::min(old_end, new_end);
    if (begin < end) {
      const auto i = static_cast<std::size_t>(e);
      found.push_back(
          {sources[i] + begin - old_begin, targets[i] + begin - new_begin, end - begin});
    }
  }
  return found;
}

// One old rank's file and what of it belongs here.
struct Source {
  TensorFile file;
  std::vector<Overlap> parts;
};

// Opens, and checks, the files that hold parts of this rank's shards.
std::vector<Source> open_experts(const Replica& replica, const CheckpointState& state,
                                 const fs::path& folder) {
  std::vector<Source> sources;
  if (replica.experts.empty()) {
    return sources;
  }
  const optim::ShardMap& new_map = replica.experts.front().map();
  optim::ShardMap old_map = new_map;
  old_map.ranks = state.cluster.ranks;
  old_map.owned = state.owned;
  for (int old_rank = 0; old_rank < old_map.ranks; ++old_rank) {
    auto parts = overlaps(old_map, old_rank, new_map, replica.communicator.rank());
    if (parts.empty()) {
      continue;
    }
    TensorFile file(folder / experts_file(old_rank, old_map.ranks),
                    experts_metadata(old_map, old_rank, state.step));
    for (const auto& [name, tensor] : expert_tensors(replica)) {
      file.check({name, at::empty({old_map.elements(old_rank)}, tensor.options())});
    }
    sources.push_back({std::move(file), std::move(parts)});
  }
  return sources;
}

// The same pairs per expert from another number of sources, evenly.
plan::Counts spread(const plan::Counts& demand, int ranks) {
  plan::Counts out(ranks, demand.cols);
  for (int e = 0; e < demand.cols; ++e) {
    std::int64_t pairs = 0;
    for (int r = 0; r < demand.rows; ++r) {
      pairs += demand.at(r, e);
    }
    for (int r = 0; r < ranks; ++r) {
      out.at(r, e) = static_cast<std::int32_t>(pairs * (r + 1) / ranks - pairs * r / ranks);
    }
  }
  return out;
}

CheckpointState checked_state(const Replica& replica, const Config& config,
                              const Checkpoint& checkpoint) {
  CheckpointState state = read_state(checkpoint.path / kStateFile);
  const std::string where = "checkpoint " + quote(checkpoint.path.string());
  const std::string changed = changed_on_resume(parse_config(state.config, where, {}), config);
  if (!changed.empty()) {
    throw InputError(where + " has " + changed + "; resume with the same value");
  }
  if (state.step != checkpoint.step || state.layers.size() != replica.experts.size()) {
    throw InputError(where + " cannot be used: its state.json is of another step or model");
  }
  return state;
}

void place_experts(Replica& replica, const CheckpointState& state) {
  for (std::size_t i = 0; i < replica.experts.size(); ++i) {
    moe::MoeLayer& layer = *replica.model.moe_layers()[i];
    const CheckpointState::Layer& old = state.layers[i];
    plan::Placement placement = old.placement;
    replica.last_demand[i] = spread(old.demand, layer.cluster().ranks);
    plan::Cluster cluster = layer.cluster();
    cluster.ranks_per_node = state.cluster.ranks_per_node;  // any placement serves any nodes
    if (state.cluster == cluster && state.strategy == replica.strategy.name()) {
      replica.last_demand[i] = old.demand;
    } else {
      placement =
          replica.strategy.place(layer.cluster(), replica.last_demand[i],
                                 replica.strategy.initial(layer.cluster()), &layer.curves());
    }
    replica.experts[i].deliver(placement, layer.slots());
  }
}

// What one rank has to write: its shards, and at rank 0 all that is the same on every rank.
void write_own_files(const Replica& replica, const Config& config, const fs::path& folder) {
  const int rank = replica.communicator.rank();
  write_tensors(
      folder / experts_file(rank, replica.communicator.size()), expert_tensors(replica),
      experts_metadata(replica.experts.empty() ? optim::ShardMap{} : replica.experts.front().map(),
                       rank, replica.steps));
  if (rank == 0) {
    std::vector<NamedTensor> tensors = model_tensors(replica);
    for (NamedTensor& curve : curve_tensors(replica)) {
      tensors.push_back(std::move(curve));
    }
    write_tensors(folder / kModelFile, tensors, model_metadata(replica.steps));
    write_state(state_of(replica, config), folder / kStateFile);
  }
}

}  // namespace

void save_checkpoint(const Replica& replica, const Config& config, const fs::path& run_folder) {
  // A rank that fails leaves by its exception, and the next barrier fails the others.
  comm::Communicator& communicator = replica.communicator;
  const fs::path partial = run_folder / (".step-" + std::to_string(replica.steps) + ".partial");
  std::unique_ptr<AtomicFolder> folder;
  if (communicator.rank() == 0) {
    folder.reset(new AtomicFolder(begin_checkpoint(run_folder, replica.steps)));
    LRMOE_ASSERT(folder->path() == partial, "the ranks disagree on a checkpoint's folder");
  }
  communicator.barrier();
  // The folder goes with rank 0's failure, so that waits until no rank writes any more.
  std::exception_ptr failure;
  try {
    write_own_files(replica, config, partial);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  communicator.barrier();
  if (failure) {
    std::rethrow_exception(failure);
  }
  communicator.barrier();
  if (communicator.rank() == 0) {
    folder->commit();
    prune_checkpoints(run_folder, config.train.keep);
  }
  communicator.barrier();
}

void load_checkpoint(Replica& replica, const Config& config, const Checkpoint& checkpoint) {
  const CheckpointState state = checked_state(replica, config, checkpoint);
  const TensorFile model_file(checkpoint.path / kModelFile, model_metadata(state.step));
  const std::vector<NamedTensor> dense = model_tensors(replica);
  const std::vector<NamedTensor> curves = curve_tensors(replica);
  for (const auto* tensors : {&dense, &curves}) {
    for (const NamedTensor& target : *tensors) {
      model_file.check(target);
    }
  }
  const std::vector<Source> sources = open_experts(replica, state, checkpoint.path);
  replica.communicator.barrier();  // nothing is changed unless every rank can go on

  for (const auto& [name, tensor] : dense) {
    model_file.copy(name, 0, tensor.numel(), tensor);
  }
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const auto& [name, tensor] = curves[i];
    model_file.copy(name, 0, tensor.numel(), tensor);
    replica.model.moe_layers()[i]->curves().restore(
        {tensor.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tensor.numel())});
  }
  for (const auto& [name, tensor] : expert_tensors(replica)) {
    for (const Source& source : sources) {
      for (const Overlap& part : source.parts) {
        source.file.copy(name, part.source, part.source + part.count,
                         tensor.narrow(0, part.target, part.count));
      }
    }
  }
  place_experts(replica, state);
  replica.steps = state.step;
}

}  // namespace lrmoe::train
