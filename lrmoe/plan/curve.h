// Score curves: how many pairs of an expert a price buys, and what variance
// selling the rest adds. Built from histograms of the scores of earlier steps;
// integers and plain IEEE double arithmetic, so every machine gets the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lrmoe::plan {

/// Bins: 0 for scores that are not above zero (or NaN), then quarter octaves (the
/// float's exponent and two mantissa bits) from 2^-60 to 2^20; beyond: the last.
inline constexpr int kScoreBins = 1 + 4 * 80;
int score_bin(float score);
/// The middle of a bin; of bin 0 a value below all others, so that pairs without
/// a score are bought last.
double score_of_bin(int bin);

/// Counts of scores per expert, of one step. Sum `counts()` over all ranks
/// (Communicator::all_reduce, i64) before it goes to ScoreCurves::update.
class ScoreHistogram {
 public:
  explicit ScoreHistogram(int experts);
  void add(int expert, float score, std::int64_t weight = 1);
  void clear();
  std::span<std::int64_t> counts() { return counts_; }  // [E * kScoreBins]
  std::span<const std::int64_t> counts() const { return counts_; }

 private:
  std::vector<std::int64_t> counts_;
};

/// The curve of one expert, per pair: everything is a mean over its pairs.
class Curve {
 public:
  /// `bins`: [kScoreBins] counts, any scale; all zero: a flat curve.
  explicit Curve(std::span<const std::int64_t> bins);

  /// Share of the pairs that the price 1/tau buys: mean of min(1, tau s). In [0, 1].
  double share(double tau) const;
  /// The tau at which `share(tau)` is `share`.
  double tau(double share) const;
  /// Mean of s^2 (1/pi - 1), pi = min(1, tau s): what sampling adds. Zero scores add nothing.
  double added_variance(double tau) const;
  /// Mean of s^2.
  double square() const;

  /// Every tau that buys all pairs is below it.
  static constexpr double kAllPairs = 0x1p63;

 private:
  std::size_t below(double tau) const;  // bins with tau * s < 1

  std::vector<double> values_;  // ascending, of bins that are not empty
  // Sums over the bins before i, of pairs, s, and (zero bin left out) s and s^2.
  std::vector<double> pairs_, mass_, scores_, squares_;
};

/// The curves of all experts side by side, so that one price is tried for all of
/// them with a few sums. Row b holds for the prices at which the b lowest values are
/// sampled and the others bought whole: share = tau * partial(b) + whole(b).
class PriceTable {
 public:
  /// Flat curves: every pair has score 1.
  explicit PriceTable(int experts);
  /// bins: [E * kScoreBins] counts, no expert without any.
  PriceTable(int experts, std::span<const std::int64_t> bins);

  int experts() const { return experts_; }
  /// Rows are 0 (everything bought) to last().
  int last() const { return static_cast<int>(knots_.size()) - 1; }
  /// The least tau of row b, falling with b: 1 / value of bin b; of the last row 0.
  double knot(int b) const { return knots_[static_cast<std::size_t>(b)]; }
  // Of each expert [E], per pair.
  const double* partial(int b) const { return partial_.data() + row(b); }
  const double* whole(int b) const { return whole_.data() + row(b); }
  /// Mean of s^2 of the values sampled in row b (of the last row: of all).
  const double* squares(int b) const { return squares_.data() + row(b); }
  /// The part of partial(b > 0) that stands for scores of zero, which add no variance.
  const double* zero() const { return zero_.data(); }
  /// Mean of s^2 (1/pi - 1) of expert e at tau, a price of row b.
  double added_variance(int b, double tau, int e) const {
    const auto i = static_cast<std::size_t>(e);
    const double scores = b == 0 ? 0.0 : partial(b)[i] - zero_[i];
    return scores <= 0.0 ? 0.0 : std::max(0.0, scores / tau - squares(b)[i]);
  }

 private:
  std::size_t row(int b) const {
    return static_cast<std::size_t>(b) * static_cast<std::size_t>(experts_);
  }
  int experts_;
  std::vector<double> knots_, partial_, whole_, squares_, zero_;
};

/// Exponential average of the histograms, and the curves that follow from it.
class ScoreCurves {
 public:
  explicit ScoreCurves(int experts);

  /// One more step (summed over the ranks): average += (step - average) / 4, in
  /// integers. The first step is taken as it is.
  void update(const ScoreHistogram& step);

  /// The expert's curve; of an expert without scores so far, that of all experts
  /// together; flat before the first step.
  const Curve& expert(int e) const { return curves_[static_cast<std::size_t>(e)]; }
  int experts() const { return static_cast<int>(curves_.size()); }
  const PriceTable& prices() const { return prices_; }

  /// What a checkpoint keeps: [E * kScoreBins], 2^-8 pairs. `restore` takes it back.
  std::span<const std::int64_t> state() const { return average_; }
  void restore(std::span<const std::int64_t> state);

 private:
  void rebuild();

  std::vector<std::int64_t> average_;
  std::vector<Curve> curves_;
  PriceTable prices_;
};

/// `curves` may be null: all experts are flat then.
const Curve& curve_of(const ScoreCurves* curves, int expert);

}  // namespace lrmoe::plan
