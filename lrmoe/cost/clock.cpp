#include "lrmoe/cost/clock.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/cost/kernels.h"
#include "lrmoe/cost/ranks.h"

namespace lrmoe::cost {
namespace {

// Bytes beside the rows, per pair: expert and gate with the dispatch, expert and
// weight with the kept pair's delta, one dp back.
constexpr double kDispatchPair = 8;
constexpr double kBackwardPair = 8;
constexpr double kReturnPair = 4;
constexpr double kCount = 4;  // an int32 of a demand or row count table
// A scored pair's passes over memory: its scores, their sum, the choice.
constexpr double kScoredPair = 32;
// AdamW, fp32: gradient read; master weight, both moments read and written. The
// new working weight is written besides.
constexpr double kAdamElement = 4 + 3 * 8;

double sum(const std::vector<std::int32_t>& values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), std::int64_t{0}));
}

double at(const std::vector<std::int32_t>& values, int index) {
  return static_cast<double>(values[static_cast<std::size_t>(index)]);
}

using RankWork = std::vector<LayerWork>;

void check_work(const RankWork& ranks) {
  for (const LayerWork& w : ranks) {
    for (const auto* table : {&w.forward_rows, &w.forward_pairs, &w.combine_rows, &w.backward_rows,
                              &w.backward_pairs}) {
      LRMOE_ASSERT(table->size() == ranks.size(), "the clock needs a count for every rank");
    }
    LRMOE_ASSERT(w.again_rows.empty() || w.again_rows.size() == ranks.size(),
                 "the clock needs a count for every rank");
    LRMOE_ASSERT(w.chunks >= 1 && w.chunks == ranks[0].chunks, "ranks differ in chunks");
  }
}

/// Prices one step on the ranks' clocks.
class Pricer {
 public:
  Pricer(const StepWork& work, const ClockOptions& options, int ranks)
      : work_(work),
        options_(options),
        ranks_(
            ranks, options.profile,
            options.ranks_per_node >= 0 ? options.ranks_per_node : options.profile.ranks_per_node),
        row_(static_cast<double>(options.shape.hidden * options.shape.element_bytes)),
        wide_(static_cast<double>(options.shape.width * options.shape.element_bytes)) {}

  StepCost run() {
    StepCost cost;
    cost.layers.resize(work_.layers.size());
    const std::size_t micro_batches = work_.layers.empty() ? 0 : work_.layers[0].size();
    for (std::size_t m = 0; m < micro_batches; ++m) {
      for (std::size_t l = 0; l < work_.layers.size(); ++l) {
        forward(l, work_.layers[l][m], cost.layers[l]);
      }
      for (std::size_t l = work_.layers.size(); l-- > 0;) {
        backward(work_.layers[l][m], cost.layers[l]);
      }
    }
    // All gradients are reduced before the first update: clipping needs their norm.
    for (std::size_t l = 0; l < work_.optimizer.size(); ++l) {
      reduce(work_.optimizer[l], cost.layers[l]);
    }
    for (std::size_t l = 0; l < work_.optimizer.size(); ++l) {
      update(work_.optimizer[l], cost.layers[l]);
    }
    for (const LayerCost& layer : cost.layers) {
      cost.total.seconds += layer.seconds;
      cost.total.bytes += layer.bytes;
    }
    return cost;
  }

 private:
  bool measured() const { return options_.profile.measured; }
  double memory(double bytes) const {
    return measured() ? 0.0 : memory_seconds(bytes, options_.profile);
  }

  /// What each row of the run stands for in one chunk.
  double scale_of(const RankWork& ranks) const {
    return options_.scale / static_cast<double>(ranks[0].chunks);
  }

  template <class Bytes>
  void exchange(LayerCost& cost, double SentBytes::*pass, const Bytes& bytes) {
    const Ranks::Result result = ranks_.exchange(bytes);
    cost.seconds.exchange += result.seconds;
    cost.bytes.*pass += result.sent;
  }

  /// All ranks' work of one kind; the longest rank's seconds.
  template <class Work>
  double compute(const Work& seconds_of) {
    double longest = 0;
    for (int r = 0; r < ranks_.size(); ++r) {
      const double seconds = seconds_of(r);
      ranks_.advance(r, seconds);
      longest = std::max(longest, seconds);
    }
    return longest;
  }

  void forward(std::size_t layer, const RankWork& ranks, LayerCost& cost) {
    const double start = ranks_.latest();
    const double demand =
        layer < work_.optimizer.size() ? work_.optimizer[layer].experts : options_.shape.experts;
    exchange(cost, &SentBytes::forward, [&](int, int) { return kCount * demand; });
    cost.seconds.plan +=
        compute([&](int r) { return plan_seconds(ranks[static_cast<std::size_t>(r)]); });
    fetch(ranks, cost);
    divide(ranks, cost, &SentBytes::forward);
    for (std::int64_t chunk = 0; chunk < ranks[0].chunks; ++chunk) {
      forward_chunk(ranks, cost);
    }
    cost.seconds.forward += ranks_.latest() - start;
  }

  /// In chunks, the sources say how each instance's pairs divide.
  void divide(const RankWork& ranks, LayerCost& cost, double SentBytes::*pass) {
    if (ranks[0].chunks > 1) {
      exchange(cost, pass, [&](int, int b) {
        const LayerWork& w = ranks[static_cast<std::size_t>(b)];
        return kCount * static_cast<double>(w.chunks) *
               static_cast<double>(w.forward_gemm_rows.size());
      });
    }
  }

  /// One chunk, a whole pass where there is only one.
  void forward_chunk(const RankWork& ranks, LayerCost& cost) {
    const double s = scale_of(ranks);
    const auto work = [&](int r) -> const LayerWork& { return ranks[static_cast<std::size_t>(r)]; };
    const auto send = [&](const auto& bytes) { exchange(cost, &SentBytes::forward, bytes); };
    compute([&](int r) { return memory(2 * s * sum(work(r).forward_rows) * row_); });
    send([&](int, int) { return kCount; });
    send([&](int a, int b) {
      return s *
             (at(work(a).forward_rows, b) * row_ + at(work(a).forward_pairs, b) * kDispatchPair);
    });
    compute([&](int r) { return forward_experts(ranks, r); });
    cost.seconds.statistics += compute([&](int r) {
      // The statistics read g, u and a of every pair.
      const bool any = work(r).statistics_bytes > 0;
      return any ? memory(s * sum(work(r).forward_gemm_rows) * 3 * wide_) : 0.0;
    });
    std::vector<double> all_pairs;
    for (const LayerWork& home : ranks) {
      all_pairs.push_back(sum(home.forward_pairs));
    }
    send([&](int a, int b) {
      const LayerWork& home = work(b);
      const double pairs = all_pairs[static_cast<std::size_t>(b)];
      const double statistics =
          pairs > 0 ? static_cast<double>(home.statistics_bytes) * at(home.forward_pairs, a) / pairs
                    : 0.0;
      return s * (at(home.combine_rows, a) * row_ + statistics);
    });
    compute(
        [&](int r) { return memory(s * (sum(work(r).combine_rows) + tokens(work(r))) * row_); });
  }

  /// In-step placement: every shard sends its part of an instance's weights to the
  /// rank that got it. Before dispatch, so that the GEMMs find them.
  void fetch(const RankWork& ranks, LayerCost& cost) {
    const auto fetched = [&](int r) {
      return static_cast<double>(ranks[static_cast<std::size_t>(r)].fetched_instances);
    };
    bool any = false;
    for (int r = 0; r < ranks_.size(); ++r) {
      any = any || fetched(r) > 0;
    }
    if (any) {
      const Ranks::Result result =
          ranks_.exchange([&](int, int b) { return fetched(b) * shard_bytes(); });
      cost.seconds.fetch += result.seconds;
      cost.bytes.weights += result.sent;
    }
  }

  /// From the arrival of a chunk's x to the leaving of the combined rows.
  double forward_experts(const RankWork& ranks, int r) const {
    const LayerWork& w = ranks[static_cast<std::size_t>(r)];
    if (measured()) {
      return cpu_seconds(w, true) / static_cast<double>(w.chunks);
    }
    const double s = scale_of(ranks);
    const double pairs = s * sum(w.forward_gemm_rows);
    double returned = 0;
    for (const LayerWork& home : ranks) {
      returned += s * at(home.combine_rows, r);
    }
    return memory(2 * pairs * row_) +  // rows to pairs
           gemm_seconds(Pass::forward, w.forward_gemm_rows, s, options_.profile, options_.shape) +
           memory(3 * pairs * wide_) +  // a = silu(g) u
           memory(2 * s * static_cast<double>(w.cached_pairs) * (row_ + 2 * wide_)) +
           memory((pairs + returned) * row_);  // the weighted sum of a token's pairs
  }

  void backward(const RankWork& ranks, LayerCost& cost) {
    const double start = ranks_.latest();
    bool selected = false;  // then the receivers do not know the counts
    for (const LayerWork& w : ranks) {
      selected = selected || w.backward_pairs != w.forward_pairs;
    }
    cost.seconds.select +=
        compute([&](int r) { return select_seconds(ranks[static_cast<std::size_t>(r)]); });
    if (selected) {
      divide(ranks, cost, &SentBytes::backward);
    }
    for (std::int64_t chunk = 0; chunk < ranks[0].chunks; ++chunk) {
      backward_chunk(ranks, cost, selected);
    }
    cost.seconds.backward += ranks_.latest() - start;
  }

  void backward_chunk(const RankWork& ranks, LayerCost& cost, bool selected) {
    const double s = scale_of(ranks);
    const auto work = [&](int r) -> const LayerWork& { return ranks[static_cast<std::size_t>(r)]; };
    const auto send = [&](const auto& bytes) { exchange(cost, &SentBytes::backward, bytes); };
    compute([&](int r) {
      const LayerWork& w = work(r);
      const double again =
          w.recompute ? sum(w.backward_rows) : sum(w.again_rows);  // rows of x beside delta's
      return memory(2 * s * (sum(w.backward_rows) + again) * row_);
    });
    if (selected) {
      send([](int, int) { return kCount; });
    }
    send([&](int a, int b) {
      const LayerWork& w = work(a);
      const double again = w.recompute            ? at(w.backward_rows, b)
                           : w.again_rows.empty() ? 0.0
                                                  : at(w.again_rows, b);
      return s *
             ((at(w.backward_rows, b) + again) * row_ + at(w.backward_pairs, b) * kBackwardPair);
    });
    compute([&](int r) { return backward_experts(ranks, r); });
    send([&](int a, int b) {
      return s *
             (at(work(b).backward_rows, a) * row_ + at(work(b).backward_pairs, a) * kReturnPair);
    });
    compute(
        [&](int r) { return memory(s * (sum(work(r).backward_rows) + tokens(work(r))) * row_); });
  }

  /// From the arrival of a chunk's delta to the leaving of dx.
  double backward_experts(const RankWork& ranks, int r) const {
    const LayerWork& w = ranks[static_cast<std::size_t>(r)];
    if (measured()) {
      return cpu_seconds(w, false) / static_cast<double>(w.chunks);
    }
    const double s = scale_of(ranks);
    const double pairs = s * sum(w.backward_gemm_rows);
    double returned = 0;
    for (const LayerWork& home : ranks) {
      returned += s * at(home.backward_rows, r);
    }
    // delta to pairs. Beside it x where it came again, and the kept pairs' x, g, u
    // where they are fewer than those that stayed here.
    const double again = w.recompute ? pairs : s * sum(w.again_gemm_rows);
    double gathered = 2 * (pairs + again) * row_;
    if (sum(w.backward_gemm_rows) < sum(w.forward_gemm_rows)) {
      gathered += 2 * (pairs - again) * (row_ + 2 * wide_);
    }
    const Pass pass = w.recompute ? Pass::backward_recompute : Pass::backward;
    return memory(gathered) +
           gemm_seconds(pass, w.backward_gemm_rows, s, options_.profile, options_.shape,
                        w.again_gemm_rows) +
           memory(6 * pairs * wide_) +  // r, g, u to dg, du and a
           memory((pairs + returned) * row_);
  }

  // Every rank's gradients go to the shards, 1/R of each expert on every rank.
  void reduce(const OptimizerWork& work, LayerCost& cost) {
    if (work.owned || !work.trained) {
      return;
    }
    const double start = ranks_.latest();
    const double part = shard_bytes();
    weight_exchange(cost, [&](int a, int) { return at(work.instances, a) * part; });
    const double arrived = sum(work.instances) * part;
    compute([&](int) { return memory(arrived); });  // summed into the shards
    cost.seconds.update += ranks_.latest() - start;
  }

  void update(const OptimizerWork& work, LayerCost& cost) {
    const double start = ranks_.latest();
    const Shape& shape = options_.shape;
    const double element = kAdamElement + static_cast<double>(shape.element_bytes);
    compute([&](int r) {
      if (!work.trained) {
        return 0.0;
      }
      const double experts =
          work.owned ? at(work.instances, r) : static_cast<double>(work.experts) / ranks_.size();
      if (measured()) {
        return work.cpu_seconds.empty() ? 0.0 : work.cpu_seconds[static_cast<std::size_t>(r)];
      }
      return memory(experts * shape.expert_elements() * element);
    });
    if (work.score_bytes > 0) {
      scores(work, cost);
    }
    if (!work.owned && sum(work.next_instances) > 0) {  // none: the next step fetches its own
      weight_exchange(cost, [&](int, int b) { return at(work.next_instances, b) * shard_bytes(); });
    }
    cost.seconds.update += ranks_.latest() - start;
  }

  // Every rank sums its part of the histograms and sends the sum to all.
  void scores(const OptimizerWork& work, LayerCost& cost) {
    const double part = static_cast<double>(work.score_bytes) / ranks_.size();
    for (int phase = 0; phase < 2; ++phase) {
      const Ranks::Result result = ranks_.exchange([&](int, int) { return part; });
      cost.seconds.scores += result.seconds;
      cost.bytes.scores += result.sent;
    }
  }

  template <class Bytes>
  void weight_exchange(LayerCost& cost, const Bytes& bytes) {
    const Ranks::Result result = ranks_.exchange(bytes);
    cost.seconds.weight_exchange += result.seconds;
    cost.bytes.weights += result.sent;
  }

  /// One instance's part on one rank's shard.
  double shard_bytes() const {
    return options_.shape.expert_elements() * static_cast<double>(options_.shape.element_bytes) /
           ranks_.size();
  }

  static double tokens(const LayerWork& w) { return static_cast<double>(w.tokens); }

  double plan_seconds(const LayerWork& w) const {
    if (measured() || w.plan_cells == 0) {
      return 0;  // measured: a part of the CPU seconds
    }
    return options_.measured_host ? w.plan_seconds
                                  : options_.profile.host_cell * static_cast<double>(w.plan_cells);
  }

  double select_seconds(const LayerWork& w) const {
    if (measured() || w.scored_pairs == 0) {
      return 0;
    }
    return options_.measured_host
               ? w.select_seconds
               : memory(options_.scale * static_cast<double>(w.scored_pairs) * kScoredPair);
  }

  /// Without a CPU time, the wall time less the collectives' (which is not told
  /// apart by pass).
  static double cpu_seconds(const LayerWork& w, bool forward) {
    if (w.forward_cpu_seconds > 0 || w.backward_cpu_seconds > 0) {
      return forward ? w.forward_cpu_seconds : w.backward_cpu_seconds;
    }
    const double wall = w.forward_seconds + w.backward_seconds;
    if (wall <= 0) {
      return 0;
    }
    const double own = forward ? w.forward_seconds : w.backward_seconds;
    return own * std::max(0.0, wall - w.exchange_seconds) / wall;
  }

  const StepWork& work_;
  const ClockOptions& options_;
  Ranks ranks_;
  const double row_;   // bytes of d elements
  const double wide_;  // bytes of n elements
};

int check_step(const StepWork& work) {
  std::size_t ranks = 0;
  for (const auto& layer : work.layers) {
    LRMOE_ASSERT(layer.size() == work.layers[0].size(), "layers differ in micro-batches");
    for (const RankWork& micro : layer) {
      ranks = ranks == 0 ? micro.size() : ranks;
      LRMOE_ASSERT(!micro.empty() && micro.size() == ranks, "micro-batches differ in ranks");
      check_work(micro);
    }
  }
  LRMOE_ASSERT(ranks > 0, "the clock needs a step with work");
  LRMOE_ASSERT(work.optimizer.empty() || work.optimizer.size() == work.layers.size(),
               "the clock needs every layer's optimizer work, or none");
  for (const OptimizerWork& w : work.optimizer) {
    LRMOE_ASSERT(w.instances.size() == ranks && (w.owned || w.next_instances.size() == ranks),
                 "the clock needs every rank's instances");
    LRMOE_ASSERT(w.cpu_seconds.empty() || w.cpu_seconds.size() == ranks,
                 "the clock needs every rank's CPU seconds, or none");
  }
  return static_cast<int>(ranks);
}

}  // namespace

StepCost price_step(const StepWork& work, const ClockOptions& options) {
  const int ranks = check_step(work);
  return Pricer(work, options, ranks).run();
}

}  // namespace lrmoe::cost
