// How often each expert is chosen, and choices that keep to it.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace lrmoe::trace {

/// The numbers that generated traces are made of. std::mt19937_64 is the same
/// everywhere; the standard's distributions are not, so none is used.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// From 0 to n - 1.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  /// Close to the standard normal: mean 0, variance 1, the scaled sum of four uniform
  /// numbers, so within +-3.47.
  double normal();

 private:
  std::mt19937_64 engine_;
};

/// Chances [E] in proportion to the weights (not negative), summing to k, none above 1:
/// what a weight has beyond 1 goes to the others. At least k weights are above 0.
std::vector<double> chances(std::span<const double> weights, int k);

/// 2^(sigma z), with sigma such that the greatest chance is `max_mean` times the mean, to
/// 1e-6; `max_mean` from 1 to E / k.
std::vector<double> lognormal_chances(std::span<const double> z, int k, double max_mean);

/// Chooses k distinct experts per token, each as often as its chance says (systematic
/// sampling; the experts' order on the line is drawn anew every 32 tokens).
class Chooser {
 public:
  Chooser(std::vector<double> chances, int k, Random& random);
  void choose(std::int32_t* ids);

 private:
  void shuffle();

  std::vector<double> chances_;
  int k_;
  Random& random_;
  std::vector<std::int32_t> order_;
  std::vector<double> ends_;  // running sums along the order
  int left_ = 0;              // tokens until the next shuffle
};

}  // namespace lrmoe::trace
