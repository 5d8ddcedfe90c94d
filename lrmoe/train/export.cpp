#include "lrmoe/train/export.h"

#include <ATen/Parallel.h>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/model/hf_export.h"
#include "lrmoe/plan/strategy.h"
#include "lrmoe/train/checkpoint.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/export_values.h"
#include "lrmoe/train/saved_model.h"

namespace lrmoe::train {

namespace {

ExportResult export_checkpoint(const ExportOptions& options, const Checkpoint& checkpoint) {
  const Config config = config_of(checkpoint, options.ranks);
  if (config.model_path.empty()) {
    throw InputError(quote(options.model.string()) +
                     " did not begin from a Hugging Face folder (model.path), so there are no "
                     "config.json and tokenizer to go with its weights");
  }
  const model::HfConfig hf = model::read_hf_config(config.model_path);
  const model::HfWeights first(config.model_path, hf);
  const auto strategy = plan::make_strategy(strategy_options(config));
  at::set_num_threads(1);
  comm::run_ranks(options.ranks, [&](comm::Communicator& communicator) {
    Replica replica(config, *strategy, communicator);
    load_checkpoint(replica, config, checkpoint);
    model::save_hf({options.target, config.model_path, options.shard_bytes}, hf, first,
                   masters_of(replica), communicator);
  });
  return {hf.notices};
}

}  // namespace

ExportResult export_model(const ExportOptions& options) {
  if (const std::optional<Checkpoint> checkpoint = find_checkpoint(options.model)) {
    return export_checkpoint(options, *checkpoint);
  }
  model::HfConfig config = model::read_hf_config(options.model);
  config.model.sequence = 1;  // nothing is computed
  const model::HfWeights weights(options.model, config);
  const auto strategy = plan::make_strategy({.name = "fixed"});
  const int slots = (config.model.experts + options.ranks - 1) / options.ranks;
  // fp32 holds every dtype exactly; bf16 only itself.
  const at::ScalarType dtype = weights.all_experts_are("BF16") ? at::kBFloat16 : at::kFloat;
  at::set_num_threads(1);  // the ranks are the threads
  comm::run_ranks(options.ranks, [&](comm::Communicator& communicator) {
    model::Transformer transformer(config.model, slots, communicator, *strategy, 0, dtype,
                                   /*ranks_per_node=*/0, model::Start::unset);
    weights.load_dense(transformer);
    weights.load_slots(transformer);
    model::save_hf({options.target, options.model, options.shard_bytes}, config, weights,
                   model::weights_of(transformer, communicator), communicator);
  });
  return {config.notices};
}

}  // namespace lrmoe::train
