#include "lrmoe/plan/curve.h"

#include <algorithm>
#include <bit>

#include "lrmoe/base/error.h"

namespace lrmoe::plan {
namespace {

constexpr int kLowestExponent = -60;
constexpr int kAverageBits = 8;   // fixed point of the averaged counts
constexpr int kAverageShift = 2;  // weight of a new step: 1/4

std::size_t cell(int expert, int bin) {
  return static_cast<std::size_t>(expert) * kScoreBins + static_cast<std::size_t>(bin);
}

}  // namespace

int score_bin(float score) {
  if (!(score > 0.0F)) {
    return 0;
  }
  const auto bits = static_cast<int>(std::bit_cast<std::uint32_t>(score) >> 21);
  return 1 + std::clamp(bits - ((127 + kLowestExponent) << 2), 0, kScoreBins - 2);
}

double score_of_bin(int bin) {
  if (bin == 0) {
    return 0x1p-62;
  }
  constexpr std::uint64_t kFirstExponent = 1023 + kLowestExponent;
  const auto place = static_cast<std::uint64_t>(bin - 1);
  const std::uint64_t exponent = kFirstExponent + place / 4;
  const std::uint64_t quarter = place % 4;
  return std::bit_cast<double>((exponent << 52) | ((2 * quarter + 1) << 49));
}

ScoreHistogram::ScoreHistogram(int experts) : counts_(cell(experts, 0), 0) {}

void ScoreHistogram::add(int expert, float score, std::int64_t weight) {
  counts_[cell(expert, score_bin(score))] += weight;
}

void ScoreHistogram::clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
}

Curve::Curve(std::span<const std::int64_t> bins) : pairs_{0}, mass_{0}, scores_{0}, squares_{0} {
  const auto add = [&](int bin, double pairs) {
    const double value = score_of_bin(bin);
    const double score = bin == 0 ? 0.0 : value;
    values_.push_back(value);
    pairs_.push_back(pairs_.back() + pairs);
    mass_.push_back(mass_.back() + pairs * value);
    scores_.push_back(scores_.back() + pairs * score);
    squares_.push_back(squares_.back() + pairs * score * score);
  };
  for (int bin = 0; bin < static_cast<int>(bins.size()); ++bin) {
    if (bins[static_cast<std::size_t>(bin)] > 0) {
      add(bin, static_cast<double>(bins[static_cast<std::size_t>(bin)]));
    }
  }
  if (values_.empty()) {
    add(score_bin(1.0F), 1.0);
  }
}

std::size_t Curve::below(double tau) const {
  const auto there = std::partition_point(values_.begin(), values_.end(),
                                          [tau](double value) { return tau * value < 1.0; });
  return static_cast<std::size_t>(there - values_.begin());
}

double Curve::share(double tau) const {
  const std::size_t b = below(tau);
  const double all = pairs_.back();
  return std::min(1.0, (tau * mass_[b] + (all - pairs_[b])) / all);
}

double Curve::tau(double share) const {
  const double all = pairs_.back();
  const double wanted = share * all;
  if (wanted >= all) {
    return kAllPairs;
  }
  // With b bins below the threshold tau is at least 1 / values_[b].
  std::size_t low = 0;
  std::size_t high = values_.size();
  while (low < high) {
    const std::size_t b = (low + high) / 2;
    if (mass_[b] / values_[b] + (all - pairs_[b]) <= wanted) {
      high = b;
    } else {
      low = b + 1;
    }
  }
  // Where what is wanted are just the bins above, rounding must not make it less.
  const double least = low < values_.size() ? 1.0 / values_[low] : 0.0;
  return std::max(least, (wanted - (all - pairs_[low])) / mass_[low]);
}

double Curve::added_variance(double tau) const {
  const std::size_t b = below(tau);
  return std::max(0.0, scores_[b] / tau - squares_[b]) / pairs_.back();
}

double Curve::square() const {
  return squares_.back() / pairs_.back();
}

PriceTable::PriceTable(int experts) : experts_(experts), knots_{1.0, 0.0} {
  const auto e = static_cast<std::size_t>(experts);
  const auto rows = [e](double first, double last) {
    std::vector<double> values(2 * e, first);
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(e), values.end(), last);
    return values;
  };
  partial_ = rows(0.0, 1.0);
  whole_ = rows(1.0, 0.0);
  squares_ = rows(0.0, 1.0);
  zero_.assign(e, 0.0);
}

PriceTable::PriceTable(int experts, std::span<const std::int64_t> bins) : experts_(experts) {
  std::vector<int> used;  // bins that any expert has
  for (int bin = 0; bin < kScoreBins; ++bin) {
    bool any = false;
    for (int e = 0; e < experts && !any; ++e) {
      any = bins[cell(e, bin)] > 0;
    }
    if (any) {
      used.push_back(bin);
      knots_.push_back(1.0 / score_of_bin(bin));
    }
  }
  knots_.push_back(0.0);
  const auto count = static_cast<std::size_t>(experts);
  partial_.resize(knots_.size() * count);
  whole_.resize(partial_.size());
  squares_.resize(partial_.size());
  zero_.resize(count);
  for (int e = 0; e < experts; ++e) {
    const auto column = static_cast<std::size_t>(e);
    double all = 0.0;
    for (const int bin : used) {
      all += static_cast<double>(bins[cell(e, bin)]);
    }
    double pairs = 0.0, mass = 0.0, squares = 0.0;
    for (std::size_t b = 0; b <= used.size(); ++b) {
      const std::size_t i = b * count + column;
      partial_[i] = mass / all;
      whole_[i] = (all - pairs) / all;
      squares_[i] = squares / all;
      if (b < used.size()) {
        const double value = score_of_bin(used[b]);
        const auto here = static_cast<double>(bins[cell(e, used[b])]);
        pairs += here;
        mass += here * value;
        squares += used[b] == 0 ? 0.0 : here * value * value;
        zero_[column] += used[b] == 0 ? here * value / all : 0.0;
      }
    }
  }
}

ScoreCurves::ScoreCurves(int experts) : average_(cell(experts, 0), 0), prices_(experts) {
  curves_.reserve(static_cast<std::size_t>(experts));
  for (int e = 0; e < experts; ++e) {
    curves_.emplace_back(std::span<const std::int64_t>{});
  }
}

void ScoreCurves::update(const ScoreHistogram& step) {
  const auto counts = step.counts();
  LRMOE_ASSERT(counts.size() == average_.size(), "[ScoreCurves] another number of experts");
  const bool first = std::all_of(average_.begin(), average_.end(), [](auto v) { return v == 0; });
  for (std::size_t i = 0; i < average_.size(); ++i) {
    const std::int64_t now = counts[i] << kAverageBits;
    average_[i] = first ? now : average_[i] + ((now - average_[i]) >> kAverageShift);
  }
  rebuild();
}

void ScoreCurves::restore(std::span<const std::int64_t> state) {
  LRMOE_ASSERT(state.size() == average_.size(), "[ScoreCurves] another number of experts");
  average_.assign(state.begin(), state.end());
  rebuild();
}

void ScoreCurves::rebuild() {
  const int experts = static_cast<int>(curves_.size());
  std::vector<std::int64_t> pooled(kScoreBins, 0);
  for (std::size_t i = 0; i < average_.size(); ++i) {
    pooled[i % kScoreBins] += average_[i];
  }
  const auto none = [](std::span<const std::int64_t> bins) {
    return std::all_of(bins.begin(), bins.end(), [](auto v) { return v == 0; });
  };
  if (none(pooled)) {
    prices_ = PriceTable(experts);
    curves_.assign(curves_.size(), Curve(pooled));
    return;
  }
  std::vector<std::int64_t> bins = average_;
  for (int e = 0; e < experts; ++e) {
    const std::span<std::int64_t> own{bins.data() + cell(e, 0), kScoreBins};
    if (none(own)) {
      std::copy(pooled.begin(), pooled.end(), own.begin());
    }
    curves_[static_cast<std::size_t>(e)] = Curve(own);
  }
  prices_ = PriceTable(experts, bins);
}

const Curve& curve_of(const ScoreCurves* curves, int expert) {
  static const Curve flat{std::span<const std::int64_t>{}};
  return curves == nullptr ? flat : curves->expert(expert);
}

}  // namespace lrmoe::plan
