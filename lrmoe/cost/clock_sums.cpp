// Around the pricing of a step: sums, the order of its tables, its settings' check.
#include <cmath>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/cost/clock.h"

namespace lrmoe::cost {

Seconds& Seconds::operator+=(const Seconds& other) {
  forward += other.forward;
  backward += other.backward;
  update += other.update;
  exchange += other.exchange;
  weight_exchange += other.weight_exchange;
  scores += other.scores;
  fetch += other.fetch;
  plan += other.plan;
  statistics += other.statistics;
  select += other.select;
  return *this;
}

SentBytes& SentBytes::operator+=(const SentBytes& other) {
  forward += other.forward;
  backward += other.backward;
  weights += other.weights;
  scores += other.scores;
  return *this;
}

std::vector<std::vector<std::vector<LayerWork>>> by_layer(
    std::span<const std::vector<LayerWork>> ranks, int micro_batches) {
  LRMOE_ASSERT(!ranks.empty() && micro_batches > 0, "no ranks or no micro-batches");
  const auto micros = static_cast<std::size_t>(micro_batches);
  const std::size_t layers = ranks[0].size() / micros;
  std::vector<std::vector<std::vector<LayerWork>>> out(layers,
                                                       std::vector<std::vector<LayerWork>>(micros));
  for (const std::vector<LayerWork>& rank : ranks) {
    LRMOE_ASSERT(rank.size() == layers * micros, "a rank's work does not divide into layers");
    for (std::size_t i = 0; i < rank.size(); ++i) {
      out[i / micros][i % micros].push_back(rank[i]);
    }
  }
  return out;
}

void check_clock(const ClockOptions& options) {
  if (!(options.scale > 0) || !std::isfinite(options.scale)) {
    throw InputError("[clock] scale must be a number above 0, not " + print_number(options.scale));
  }
  if (options.profile.measured && (options.shape.name != "own" || options.scale != 1)) {
    throw InputError("[clock] profile '" + options.profile.name +
                     "' prices measured seconds, so shape must be \"own\" and scale 1");
  }
}

}  // namespace lrmoe::cost
