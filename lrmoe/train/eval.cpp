#include "lrmoe/train/eval.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/npy.h"
#include "lrmoe/comm/threads.h"
#include "lrmoe/moe/exchange.h"
#include "lrmoe/train/batch.h"
#include "lrmoe/train/checkpoint.h"
#include "lrmoe/train/checkpoint_state.h"
#include "lrmoe/train/config_clock.h"

namespace lrmoe::train {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokensPerPass = 4096;     // of one rank
constexpr std::int64_t kLogitsPerPass = 1 << 24;  // of all ranks: 64 MiB

Checkpoint find_checkpoint(const fs::path& folder) {
  const std::string where = quote(folder.string());
  if (!fs::is_directory(folder)) {
    throw InputError(where + (fs::exists(folder) ? " is no folder" : " does not exist") +
                     "; name a run folder or a checkpoint in it (step-N)");
  }
  if (fs::exists(folder / kStateFile)) {
    return {read_state(folder / kStateFile).step, folder};
  }
  if (const std::optional<Checkpoint> newest = newest_checkpoint(folder)) {
    return *newest;
  }
  if (fs::exists(folder / "config.json")) {
    throw InputError(where + " is a Hugging Face folder (it has a config.json), which this " +
                     "program cannot read yet; name a run folder or a checkpoint in it (step-N)");
  }
  throw InputError(where + (fs::exists(folder / "config.toml")
                                ? " is a run folder without a checkpoint; train.checkpoint_every "
                                  "or the end of the run writes one"
                                : " is no run folder and no checkpoint: there is no step-N and no "
                                  "state.json in it"));
}

// The checkpoint's own configuration, with every expert once and no strategy that
// would need more.
Config config_of(const Checkpoint& checkpoint, int ranks) {
  const CheckpointState state = read_state(checkpoint.path / kStateFile);
  Config config = parse_config(
      state.config, "the configuration in " + quote((checkpoint.path / kStateFile).string()), {});
  config.parallel.ranks = ranks;
  config.parallel.slots = (config.model.experts + ranks - 1) / ranks;
  config.strategy = plan::StrategyOptions{.name = "fixed"};
  return config;
}

// Token ids as sequences that the model can take.
struct Sequences {
  std::vector<std::int64_t> ids;
  std::int64_t rows = 0;
  std::int64_t length = 0;
  bool joined = false;  // one long sequence: the rows follow each other, the last may be shorter

  std::int64_t end_of(std::int64_t row) const {
    return std::min((row + 1) * length, static_cast<std::int64_t>(ids.size()));
  }
};

Sequences read_sequences(const fs::path& path, const model::ModelConfig& model) {
  const npy::Reader file(path);
  const std::string where = quote(path.string()) + ": ";
  const std::vector<std::int64_t>& shape = file.shape();
  if (shape.size() != 1 && shape.size() != 2) {
    throw InputError(where + "the array has " + std::to_string(shape.size()) +
                     " dimensions; token ids have one (a long sequence) or two (a sequence per "
                     "row)");
  }
  Sequences out;
  out.ids = file.integers();
  out.joined = shape.size() == 1;
  if (out.ids.empty()) {
    throw InputError(where + "the array is empty; it takes two tokens at least");
  }
  if (shape.back() < 2) {
    throw InputError(where +
                     "a sequence of one token has nothing to predict; it takes two at "
                     "least");
  }
  if (!out.joined && shape[1] > model.sequence) {
    throw InputError(where + "rows of " + std::to_string(shape[1]) +
                     " tokens are longer than the model's sequence (" +
                     std::to_string(model.sequence) +
                     "); a one-dimensional array is cut into pieces of that length");
  }
  for (std::size_t i = 0; i < out.ids.size(); ++i) {
    if (out.ids[i] < 0 || out.ids[i] >= model.vocabulary) {
      throw InputError(where + "the token id " + std::to_string(out.ids[i]) + " at position " +
                       std::to_string(i) + " is outside the model's vocabulary (0 to " +
                       std::to_string(model.vocabulary - 1) + ")");
    }
  }
  out.length = out.joined ? std::min<std::int64_t>(model.sequence, shape[0]) : shape[1];
  out.rows = (static_cast<std::int64_t>(out.ids.size()) + out.length - 1) / out.length;
  return out;
}

// Rows [begin, end), all of one length.
Batch batch_of(const Sequences& sequences, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = begin * sequences.length;
  const std::int64_t count = end > begin ? sequences.end_of(end - 1) - first : 0;
  const auto* ids = sequences.ids.data();
  std::vector<std::int64_t> targets(static_cast<std::size_t>(count), kNoTarget);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t next = first + i + 1;
    const bool follows = sequences.joined ? next < static_cast<std::int64_t>(sequences.ids.size())
                                          : next % sequences.length != 0;
    if (follows) {
      targets[static_cast<std::size_t>(i)] = ids[next];
    }
  }
  const std::int64_t rows = end - begin;
  const std::vector<std::int64_t> shape{rows, rows > 0 ? count / rows : sequences.length};
  return {at::tensor(std::vector<std::int64_t>(ids + first, ids + first + count), at::kLong)
              .view(shape),
          at::tensor(targets, at::kLong).view(shape)};
}

// The rows of all ranks, in order of rank, at rank 0; none at the others.
at::Tensor at_first_rank(comm::Communicator& communicator, const at::Tensor& rows) {
  std::vector<std::int64_t> send(static_cast<std::size_t>(communicator.size()), 0);
  send[0] = rows.size(0);
  return moe::exchange_rows(communicator, rows, send, moe::exchange_counts(communicator, send));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// The sum of cross-entropies over all tokens with a target, the same on every rank.
// Logits are brought together if they are wanted, and written by the rank that has
// the writer.
double total_loss(Replica& replica, const Sequences& sequences, const model::ModelConfig& model,
                  bool with_logits, npy::Writer* writer) {
  const at::NoGradGuard no_grad;
  comm::Communicator& communicator = replica.communicator;
  const std::int64_t tokens =
      std::min(kTokensPerPass * communicator.size(), kLogitsPerPass / model.vocabulary);
  const std::int64_t most = std::max<std::int64_t>(1, tokens / sequences.length);
  const std::int64_t whole = static_cast<std::int64_t>(sequences.ids.size()) / sequences.length;
  double sum = 0;
  for (std::int64_t first = 0; first < sequences.rows;) {
    // A shorter last row goes alone.
    const std::int64_t count = first < whole ? std::min(most, whole - first) : 1;
    const auto [begin, end] = share(count, communicator.rank(), communicator.size());
    const Batch batch = batch_of(sequences, first + begin, first + end);
    const at::Tensor logits =
        replica.model.logits(batch.tokens, {replica.steps, 0, /*evaluate=*/true})
            .reshape({-1, model.vocabulary});
    sum += at::cross_entropy_loss(logits, batch.targets.reshape({-1}), /*weight=*/{},
                                  at::Reduction::Sum, kNoTarget)
               .item<double>();
    if (with_logits) {
      const at::Tensor all = at_first_rank(communicator, logits.to(at::kFloat).contiguous());
      if (writer != nullptr) {
        writer->append(bytes_of(all));
      }
    }
    first += count;
  }
  communicator.all_reduce(comm::view(std::span<double>(&sum, 1)), comm::Reduce::sum);
  return sum;
}

}  // namespace

EvalResult evaluate(const EvalOptions& options) {
  const Checkpoint checkpoint = find_checkpoint(options.model);
  const Config config = config_of(checkpoint, options.ranks);
  const Sequences sequences = read_sequences(options.tokens, config.model);
  EvalResult result;
  result.checkpoint = checkpoint.path;
  result.step = checkpoint.step;
  result.tokens = static_cast<std::int64_t>(sequences.ids.size());
  result.scored = result.tokens - (sequences.joined ? 1 : sequences.rows);
  std::optional<npy::Writer> writer;
  if (!options.logits.empty()) {
    writer.emplace(options.logits, "<f4",
                   std::vector<std::int64_t>{result.tokens, config.model.vocabulary});
  }
  at::set_num_threads(1);  // the ranks are the threads
  const auto strategy = plan::make_strategy(strategy_options(config));
  comm::run_ranks(options.ranks, [&](comm::Communicator& communicator) {
    Replica replica(config, *strategy, communicator);
    load_checkpoint(replica, config, checkpoint);
    const bool first = communicator.rank() == 0;
    const double sum = total_loss(replica, sequences, config.model, writer.has_value(),
                                  writer && first ? &*writer : nullptr);
    if (first) {
      result.loss = sum / static_cast<double>(result.scored);
    }
  });
  result.perplexity = std::exp(result.loss);
  if (writer) {
    writer->commit();
  }
  return result;
}

}  // namespace lrmoe::train
