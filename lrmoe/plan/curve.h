// Score curves: how many pairs of an expert a price buys, and what variance
// selling the rest adds. Built from histograms of the scores of earlier steps;
// integers and plain IEEE double arithmetic, so every machine gets the same bits.
#pragma once

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

  /// What a checkpoint keeps: [E * kScoreBins], 2^-8 pairs. `restore` takes it back.
  std::span<const std::int64_t> state() const { return average_; }
  void restore(std::span<const std::int64_t> state);

 private:
  void rebuild();

  std::vector<std::int64_t> average_;
  std::vector<Curve> curves_;
};

/// `curves` may be null: all experts are flat then.
const Curve& curve_of(const ScoreCurves* curves, int expert);

}  // namespace lrmoe::plan
