// The price search: what one price, or a price per full rank, buys of many lots.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lrmoe/plan/curve.h"

namespace lrmoe::plan {

/// Pairs with one expert's curve each, bought together, in groups (ranks). Fixed
/// point, 0 <= floor <= demand.
struct Lots {
  std::vector<std::int32_t> expert;
  std::vector<std::int64_t> demand, floor;
  std::vector<std::int32_t> group_begin{0};  // [G + 1]

  void clear();
  void add(std::int32_t e, std::int64_t wanted, std::int64_t least);
  void resize(std::size_t count);
  void set(std::size_t i, std::int32_t e, std::int64_t wanted, std::int64_t least) {
    expert[i] = e;
    demand[i] = wanted;
    floor[i] = least;
  }
  void end_group() { group_begin.push_back(static_cast<std::int32_t>(expert.size())); }
  std::size_t size() const { return expert.size(); }
  int groups() const { return static_cast<int>(group_begin.size()) - 1; }
};

/// What was bought of each lot, and the price: 1/tau, of row `row` of the table.
struct Purchase {
  std::vector<std::int64_t> quota;
  std::vector<double> tau;
  std::vector<std::int32_t> row;
};

class Buyer {
 public:
  static constexpr std::int64_t kNoCapacity = std::numeric_limits<std::int64_t>::max();

  /// One price for all lots, floor <= quota <= demand, exactly `target` in sum; a
  /// group that would get more than `capacity` gets just that, at a price of its
  /// own. The price is found by rows of the table, then within the row, where what is
  /// bought is linear between a few kinks; rounding errors (some 2^-24 pairs) go to
  /// the first lots that can take them. What the groups can take must reach the
  /// target, and floors fit in both.
  void buy(const PriceTable& prices, const Lots& lots, std::int64_t target, std::int64_t capacity,
           Purchase& out);

 private:
  struct Sum {
    double value = 0.0;
    double slope = 0.0;
  };
  struct Price {
    int row = 0;
    double tau = 0.0;
  };
  Sum of_group(int g, int row, double tau) const;
  Sum of_all(int row, double tau) const;
  template <class F>
  Price find(F sum, double target, int first_row, int last_row) const;
  void take(std::size_t begin, std::size_t end, Price price, Purchase& out) const;
  std::int64_t adjust(std::size_t begin, std::size_t end, std::int64_t rest, Purchase& out) const;

  const PriceTable* prices_ = nullptr;
  const Lots* lots_ = nullptr;
  double capacity_ = 0.0;
  std::vector<double> demand_, floor_;
};

/// Added variance of a purchase and the sum of s^2, both over all pairs.
struct Variance {
  double added = 0.0;
  double squares = 0.0;
  double relative() const { return squares > 0.0 ? added / squares : 0.0; }
};
Variance variance_of(const PriceTable& prices, const Lots& lots, const Purchase& purchase);

}  // namespace lrmoe::plan
