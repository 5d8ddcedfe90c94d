#include "lrmoe/train/recording.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/trace/trace.h"
#include "lrmoe/trace/writer.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

std::int64_t steps_recorded(const Config& config) {
  const std::int64_t all = config.train.steps;
  return config.trace.steps > 0 ? std::min(config.trace.steps, all) : all;
}

trace::Info info_of(const Config& config, int layers, std::int64_t first) {
  const std::int64_t last = std::max(steps_recorded(config), first);
  if (last - first >= 1'000'000'000) {
    throw InputError("trace.write: " + std::to_string(last) +
                     " steps are too many for one file; set trace.steps");
  }
  trace::Info info;
  info.model = std::to_string(config.model.layers) + " layers, trained by LRMoE";
  info.source = "lrmoe train, strategy " + config.strategy.name + ", seed " +
                std::to_string(config.train.seed);
  info.experts = config.model.experts;
  info.top_k = config.model.top_k;
  info.steps = static_cast<int>(last - first + 1);
  info.layers = layers;
  info.hidden = config.model.hidden;
  info.expert_width = config.model.expert_width;
  info.ranks = config.parallel.ranks;
  info.first = first;
  return info;
}

/// Rank 0 has `mine` of every rank, in their order; nobody else has anything.
template <class T>
std::vector<T> gather_to_first(comm::Communicator& communicator, std::vector<T> mine,
                               std::span<const std::int64_t> counts) {
  const bool first = communicator.rank() == 0;
  std::int64_t all = 0;
  for (const std::int64_t count : counts) {
    all += count;
  }
  std::vector<T> found(first ? static_cast<std::size_t>(all) : 0);
  std::vector<comm::Transfer> transfers;
  std::size_t at = 0;
  for (int r = 0; r < communicator.size() && first; ++r) {
    const auto count = static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]);
    const std::span<T> part(found.data() + at, count);
    if (r == 0) {
      std::copy(mine.begin(), mine.end(), part.begin());
    } else if (count > 0) {
      transfers.push_back({comm::Transfer::Kind::receive, r, comm::view(part)});
    }
    at += count;
  }
  if (!first && !mine.empty()) {
    transfers.push_back({comm::Transfer::Kind::send, 0, comm::view(std::span<T>(mine))});
  }
  communicator.exchange(transfers);
  return found;
}

}  // namespace

void check_recording(const Config& config, bool resume) {
  if (config.trace.write.empty()) {
    return;
  }
  const fs::path path(config.trace.write);
  const std::string where = "trace.write = " + quote(config.trace.write) + ": ";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw InputError(where + "there is no folder " + quote(folder.string()));
  }
  if (!resume && fs::exists(path, ignored)) {
    throw InputError(where + "it exists already; a new run records to a new file");
  }
}

Recording::Recording(const Config& config, Replica& replica)
    : replica_(replica),
      top_k_(config.model.top_k),
      last_step_(steps_recorded(config)),
      layers_(replica.model.moe_layers().size()) {
  if (layers_.empty()) {
    throw InputError("trace.write: the model has no MoE layer whose routing could be recorded");
  }
  if (replica.communicator.rank() == 0) {
    open(config);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    moe::MoeLayer& layer = *replica.model.moe_layers()[i];
    layer.watch_routing(
        [&pairs = layers_[i]](std::span<const std::int64_t> experts, std::span<const float> gates) {
          for (const std::int64_t expert : experts) {
            pairs.ids.push_back(static_cast<std::int32_t>(expert));
          }
          pairs.gates.insert(pairs.gates.end(), gates.begin(), gates.end());
        });
    if (config.trace.scores) {
      layer.watch_scores([&pairs = layers_[i]](std::span<const float> scores) {
        pairs.scores.insert(pairs.scores.end(), scores.begin(), scores.end());
      });
    }
  }
}

Recording::~Recording() {
  for (const auto& layer : replica_.model.moe_layers()) {
    layer->watch_routing({});
    layer->watch_scores({});
  }
}

void Recording::open(const Config& config) {
  const fs::path path(config.trace.write);
  const trace::WriterOptions options{.live = true, .scores = config.trace.scores};
  const int layers = static_cast<int>(layers_.size());
  if (!fs::exists(path)) {
    if (replica_.steps < last_step_) {
      writer_ = std::make_unique<trace::Writer>(path, info_of(config, layers, replica_.steps + 1),
                                                options);
    }
    return;
  }
  const std::int64_t first = trace::Trace::open(path).info().first;
  const std::int64_t kept = std::min(replica_.steps, last_step_) - first + 1;
  if (kept < 0) {
    throw InputError(quote(config.trace.write) + " begins with step " + std::to_string(first) +
                     ", and the run goes on after step " + std::to_string(replica_.steps) +
                     "; name another file with trace.write");
  }
  if (replica_.steps < last_step_) {
    writer_ = trace::resume(path, info_of(config, layers, first), static_cast<int>(kept), options);
  }
}

trace::Routing Recording::gather(const Pairs& mine) {
  comm::Communicator& communicator = replica_.communicator;
  // Scores count where every pair has one: a plan that keeps all pairs has none.
  const std::array<std::int64_t, 2> own{static_cast<std::int64_t>(mine.ids.size()),
                                        mine.scores.size() == mine.ids.size() ? 1 : 0};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(comm::view(std::span<const std::int64_t>(own)),
                          comm::view(std::span<std::int64_t>(all)));
  std::vector<std::int64_t> counts;
  bool scored = true;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    counts.push_back(all[i]);
    scored = scored && all[i + 1] != 0;
  }
  trace::Routing routing;
  routing.top_k = top_k_;
  routing.ids = gather_to_first(communicator, mine.ids, counts);
  routing.gates = gather_to_first(communicator, mine.gates, counts);
  if (scored) {
    routing.scores = gather_to_first(communicator, mine.scores, counts);
  }
  routing.tokens = static_cast<std::int64_t>(routing.ids.size()) / top_k_;
  for (std::size_t r = 0; r < counts.size() && communicator.rank() == 0; ++r) {
    routing.sources.insert(routing.sources.end(), static_cast<std::size_t>(counts[r] / top_k_),
                           static_cast<std::int32_t>(r));
  }
  return routing;
}

void Recording::end_step() {
  for (Pairs& layer : layers_) {
    if (replica_.steps <= last_step_) {
      const trace::Routing routing = gather(layer);
      if (writer_) {
        writer_->append(routing);
      }
    }
    layer = {};
  }
}

void Recording::sync() {
  if (writer_ && writer_->steps() > 0) {
    writer_->flush();
  }
}

}  // namespace lrmoe::train
