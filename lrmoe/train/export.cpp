#include "lrmoe/train/export.h"

#include <ATen/Parallel.h>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/model/hf_export.h"
#include "lrmoe/plan/strategy.h"

namespace lrmoe::train {

ExportResult export_model(const ExportOptions& options) {
  if (!model::is_hf_folder(options.model)) {
    throw InputError(quote(options.model.string()) +
                     " is no Hugging Face folder: there is no config.json in it");
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
