#include "lrmoe/train/eval.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/npy.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/model/hf_export.h"
#include "lrmoe/model/hf_weights.h"
#include "lrmoe/moe/exchange.h"
#include "lrmoe/train/checkpoint.h"
#include "lrmoe/train/checkpoint_state.h"
#include "lrmoe/train/config_clock.h"
#include "lrmoe/train/eval_data.h"
#include "lrmoe/train/saved_model.h"

namespace lrmoe::train {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokensPerPass = 4096;     // of one rank
constexpr std::int64_t kLogitsPerPass = 1 << 24;  // of all ranks: 64 MiB
constexpr std::int64_t kPiece = 2048;             // of a long sequence, where the model allows more

// The rows of all ranks, in order of rank, at rank 0; none at the others.
at::Tensor at_first_rank(comm::Communicator& communicator, const at::Tensor& rows) {
  std::vector<std::int64_t> send(static_cast<std::size_t>(communicator.size()), 0);
  send[0] = rows.size(0);
  return moe::exchange_rows(communicator, rows, send, moe::exchange_counts(communicator, send));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// The passes in which all rows are computed: [first, first + count), rows of one length.
void for_each_pass(const Sequences& sequences, std::int64_t vocabulary, int ranks,
                   const std::function<void(std::int64_t first, std::int64_t count)>& act) {
  const std::int64_t tokens = std::min(kTokensPerPass * ranks, kLogitsPerPass / vocabulary);
  const std::int64_t most = std::max<std::int64_t>(1, tokens / sequences.length);
  const std::int64_t whole = sequences.tokens() / sequences.length;
  for (std::int64_t first = 0; first < sequences.rows;) {
    // A shorter last row goes alone.
    const std::int64_t count = first < whole ? std::min(most, whole - first) : 1;
    act(first, count);
    first += count;
  }
}

Batch own_batch(const Sequences& sequences, std::int64_t first, std::int64_t count,
                const comm::Communicator& communicator) {
  const auto [begin, end] = share(count, communicator.rank(), communicator.size());
  return batch_of(sequences, first + begin, first + end);
}

double over_ranks(comm::Communicator& communicator, double value) {
  communicator.all_reduce(comm::view(std::span<double>(&value, 1)), comm::Reduce::sum);
  return value;
}

// The sum of cross-entropies over all tokens with a target, the same on every rank.
// Logits are brought together if they are wanted, and written by the rank that has
// the writer.
double total_loss(model::Transformer& transformer, comm::Communicator& communicator,
                  const Sequences& sequences, const moe::StepInfo& info, bool with_logits,
                  npy::Writer* writer) {
  const at::NoGradGuard no_grad;
  const std::int64_t vocabulary = transformer.config().vocabulary;
  double sum = 0;
  for_each_pass(sequences, vocabulary, communicator.size(), [&](auto first, auto count) {
    const Batch batch = own_batch(sequences, first, count, communicator);
    const at::Tensor logits = transformer.logits(batch.tokens, info).reshape({-1, vocabulary});
    sum += at::cross_entropy_loss(logits, batch.targets.reshape({-1}), /*weight=*/{},
                                  at::Reduction::Sum)
               .item<double>();
    if (with_logits) {
      const at::Tensor all = at_first_rank(communicator, logits.to(at::kFloat).contiguous());
      if (writer != nullptr) {
        writer->append(bytes_of(all));
      }
    }
  });
  return over_ranks(communicator, sum);
}

// Leaves the gradient of mean cross-entropy + aux_weight * (mean of the passes' load
// losses) in the parameters; the load loss, the same on every rank.
double backward(model::Transformer& transformer, comm::Communicator& communicator,
                const Sequences& sequences, moe::StepInfo info, double aux_weight) {
  info.evaluate = false;
  info.keep_all = true;
  std::int64_t passes = 0;
  const auto for_each = [&](const auto& act) {
    for_each_pass(sequences, transformer.config().vocabulary, communicator.size(), act);
  };
  for_each([&](auto, auto) { ++passes; });
  double aux = 0;
  for_each([&](auto first, auto count) {
    const Batch batch = own_batch(sequences, first, count, communicator);
    const auto loss = transformer.loss(batch.tokens, batch.targets, info);
    const at::Tensor weighted = loss.cross_entropy / static_cast<double>(sequences.scored()) +
                                loss.aux * (aux_weight / static_cast<double>(passes));
    weighted.backward();
    aux += loss.aux.item<double>() / static_cast<double>(passes);
  });
  return over_ranks(communicator, aux);
}

// A model to evaluate: where it comes from, and how a rank gets it.
struct Subject {
  model::ModelConfig model;
  std::int64_t step = 0;
  // Calls `use` with the rank's model, which lives as long as the call.
  std::function<void(comm::Communicator&, const std::function<void(model::Transformer&)>& use)>
      load;
};

Subject own_subject(const Checkpoint& checkpoint, const EvalOptions& options) {
  if (!options.dtype.empty()) {
    throw InputError("--dtype is for Hugging Face folders; " + quote(checkpoint.path.string()) +
                     " is a checkpoint, which is computed as it was trained");
  }
  auto config = std::make_shared<Config>(config_of(checkpoint, options.ranks));
  config->model.aux_loss = options.aux_loss_kind;
  std::shared_ptr<const plan::Strategy> strategy = plan::make_strategy(strategy_options(*config));
  return {config->model, checkpoint.step, [=](comm::Communicator& communicator, const auto& use) {
            Replica replica(*config, *strategy, communicator);
            load_checkpoint(replica, *config, checkpoint);
            use(replica.model);
          }};
}

Subject hf_subject(const EvalOptions& options, const Sequences& sequences, model::HfConfig config) {
  config.model.sequence = static_cast<int>(sequences.length);
  config.model.aux_loss = options.aux_loss_kind;
  const std::string dtype = options.dtype.empty() ? config.dtype : options.dtype;
  const auto weights = std::make_shared<const model::HfWeights>(options.model, config);
  const std::shared_ptr<const plan::Strategy> strategy = plan::make_strategy({.name = "fixed"});
  const int slots = (config.model.experts + options.ranks - 1) / options.ranks;
  return {config.model, 0, [=](comm::Communicator& communicator, const auto& use) {
            model::Transformer transformer(config.model, slots, communicator, *strategy, 0,
                                           dtype == "bfloat16" ? at::kBFloat16 : at::kFloat,
                                           /*ranks_per_node=*/0, model::Start::unset);
            weights->load_dense(transformer);
            weights->load_slots(transformer);
            use(transformer);
          }};
}

}  // namespace

EvalResult evaluate(const EvalOptions& options) {
  EvalResult result;
  result.checkpoint = options.model;
  Sequences sequences;
  Subject subject;
  if (const std::optional<Checkpoint> checkpoint = find_checkpoint(options.model)) {
    subject = own_subject(*checkpoint, options);
    sequences = read_sequences(options.tokens, subject.model, subject.model.sequence,
                               subject.model.sequence);
    result.checkpoint = checkpoint->path;
  } else {
    const model::HfConfig config = model::read_hf_config(options.model);
    result.notices = config.notices;
    const std::int64_t longest = config.model.positions;
    sequences = read_sequences(options.tokens, config.model, std::min(longest, kPiece), longest);
    subject = hf_subject(options, sequences, config);
  }
  result.step = subject.step;
  result.tokens = sequences.tokens();
  result.scored = sequences.scored();
  std::optional<npy::Writer> writer;
  if (!options.logits.empty()) {
    writer.emplace(options.logits, "<f4",
                   std::vector<std::int64_t>{result.tokens, subject.model.vocabulary});
  }
  at::set_num_threads(1);  // the ranks are the threads
  comm::run_ranks(options.ranks, [&](comm::Communicator& communicator) {
    subject.load(communicator, [&](model::Transformer& transformer) {
      const bool first = communicator.rank() == 0;
      const moe::StepInfo info{subject.step, 0, /*evaluate=*/true};
      const double sum = total_loss(transformer, communicator, sequences, info, writer.has_value(),
                                    writer && first ? &*writer : nullptr);
      if (first) {
        result.loss = sum / static_cast<double>(result.scored);
      }
      if (!options.gradients.empty()) {
        const double aux = backward(transformer, communicator, sequences, info, options.aux_loss);
        write_hf_tensors(options.gradients, transformer.config(),
                         gradients_of(transformer, communicator), communicator);
        if (first) {
          result.aux_loss = aux;
        }
      }
    });
  });
  result.perplexity = std::exp(result.loss);
  if (writer) {
    writer->commit();
  }
  return result;
}

}  // namespace lrmoe::train
