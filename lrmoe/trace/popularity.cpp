#include "lrmoe/trace/popularity.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/error.h"
#include "lrmoe/trace/portable_math.h"

namespace lrmoe::trace {
namespace {

constexpr int kTokensPerOrder = 32;

double sum_of(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) {
    sum += value;
  }
  return sum;
}

double greatest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::vector<double> spread(std::span<const double> z, double sigma, int k) {
  // Against the greatest, so that no power overflows.
  const double most = *std::max_element(z.begin(), z.end());
  std::vector<double> weights;
  for (const double x : z) {
    weights.push_back(portable_exp2(std::max(sigma * (x - most), -900.0)));
  }
  return chances(weights, k);
}

}  // namespace

double Random::normal() {
  std::uint64_t bits = engine_();
  std::int64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int64_t>(bits & 0xffffU);
    bits >>= 16;
  }
  // Mean 2 * 65535, variance 4 / 12 of 65536^2.
  return static_cast<double>(sum - 131070) * (1.7320508075688772 / 65536.0);
}

std::vector<double> chances(std::span<const double> weights, int k) {
  std::vector<double> found(weights.size(), 0.0);
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  double left = k;
  double rest = sum_of(weights);
  std::size_t at = 0;
  // The heaviest reach 1 first.
  while (at < order.size() && left > 0.5 && weights[order[at]] * left >= rest) {
    found[order[at]] = 1.0;
    left -= 1.0;
    rest -= weights[order[at]];
    ++at;
  }
  rest = 0.0;  // anew: what was subtracted left rounding errors
  for (std::size_t i = at; i < order.size(); ++i) {
    rest += weights[order[i]];
  }
  LRMOE_ASSERT(left < 0.5 || rest > 0.0, "fewer than k experts have a chance");
  for (std::size_t i = at; i < order.size() && left > 0.5; ++i) {
    found[order[i]] = std::min(1.0, weights[order[i]] / rest * left);
  }
  return found;
}

std::vector<double> lognormal_chances(std::span<const double> z, int k, double max_mean) {
  const double mean = static_cast<double>(k) / static_cast<double>(z.size());
  double low = 0.0, high = 1.0;
  while (greatest(spread(z, high, k)) < max_mean * mean && high < 1e6) {
    low = high;
    high *= 2.0;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2.0;
    (greatest(spread(z, middle, k)) < max_mean * mean ? low : high) = middle;
  }
  return spread(z, high, k);
}

Chooser::Chooser(std::vector<double> chances_of, int k, Random& random)
    : chances_(std::move(chances_of)),
      k_(k),
      random_(random),
      order_(chances_.size()),
      ends_(chances_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
}

void Chooser::shuffle() {
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random_.below(i)]);
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    sum += chances_[static_cast<std::size_t>(order_[i])];
    ends_[i] = sum;
  }
  left_ = kTokensPerOrder;
}

void Chooser::choose(std::int32_t* ids) {
  if (left_ == 0) {
    shuffle();
  }
  --left_;
  // The experts whose stretch holds u, u + 1, ...: stretches are at most 1 long, so all
  // differ, but for rounding, which the loop's start rules out.
  const double scale = ends_.back() / k_;  // 1 but for rounding
  const double u = random_.uniform();
  std::size_t from = 0;
  for (int j = 0; j < k_; ++j) {
    const auto found = std::upper_bound(ends_.begin() + static_cast<std::ptrdiff_t>(from),
                                        ends_.end(), (u + j) * scale);
    const auto last = order_.size() - static_cast<std::size_t>(k_ - j);
    const auto at = std::min(static_cast<std::size_t>(found - ends_.begin()), last);
    ids[j] = order_[at];
    from = at + 1;
  }
}

}  // namespace lrmoe::trace
