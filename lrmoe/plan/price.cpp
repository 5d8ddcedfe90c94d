#include "lrmoe/plan/price.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {

void Lots::clear() {
  expert.clear();
  demand.clear();
  floor.clear();
  group_begin.assign(1, 0);
}

void Lots::resize(std::size_t count) {
  expert.resize(count);
  demand.resize(count);
  floor.resize(count);
}

void Lots::add(std::int32_t e, std::int64_t wanted, std::int64_t least) {
  expert.push_back(e);
  demand.push_back(wanted);
  floor.push_back(least);
}

Buyer::Sum Buyer::of_group(int g, int row, double tau) const {
  const double* partial = prices_->partial(row);
  const double* whole = prices_->whole(row);
  const auto end = static_cast<std::size_t>(lots_->group_begin[static_cast<std::size_t>(g) + 1]);
  Sum sum;
  for (auto i = static_cast<std::size_t>(lots_->group_begin[static_cast<std::size_t>(g)]); i < end;
       ++i) {
    const auto e = static_cast<std::size_t>(lots_->expert[i]);
    const double bought = demand_[i] * (tau * partial[e] + whole[e]);
    const bool above = bought > floor_[i];
    sum.value += above ? bought : floor_[i];
    sum.slope += above ? demand_[i] * partial[e] : 0.0;
  }
  return sum;
}

Buyer::Sum Buyer::of_all(int row, double tau) const {
  Sum all;
  for (int g = 0; g < lots_->groups(); ++g) {
    const Sum sum = of_group(g, row, tau);
    const bool full = sum.value >= capacity_;
    all.value += full ? capacity_ : sum.value;
    all.slope += full ? 0.0 : sum.slope;
  }
  return all;
}

/// The price at which sum(row, tau) is `target`, in rows (first_row, last_row]: the
/// sum at the last row's least price is at most the target.
template <class F>
Buyer::Price Buyer::find(F sum, double target, int first_row, int last_row) const {
  int low = first_row;
  int high = last_row;
  while (low < high) {
    const int row = (low + high) / 2;
    if (sum(row, prices_->knot(row)).value <= target) {
      high = row;
    } else {
      low = row + 1;
    }
  }
  Price price{low, prices_->knot(low)};
  if (low == 0) {
    return price;  // everything is bought
  }
  // Newton's steps, kept between the least and the largest tau of the row.
  constexpr double kClose = 4.0;  // units of 2^-24 pairs
  constexpr int kSteps = 80;
  double least = prices_->knot(low);
  double most = prices_->knot(low - 1);
  for (int step = 0; step < kSteps; ++step) {
    const Sum here = sum(low, price.tau);
    const double missing = target - here.value;
    if (missing <= kClose && missing >= -kClose) {
      break;
    }
    (missing > 0.0 ? least : most) = price.tau;
    double next = here.slope > 0.0 ? price.tau + missing / here.slope : least;
    if (!(next > least && next < most)) {
      next = least + (most - least) / 2;
    }
    if (!(next > least && next < most)) {
      break;  // neighbouring doubles
    }
    price.tau = next;
  }
  return price;
}

void Buyer::take(std::size_t begin, std::size_t end, Price price, Purchase& out) const {
  const double* partial = prices_->partial(price.row);
  const double* whole = prices_->whole(price.row);
  for (std::size_t i = begin; i < end; ++i) {
    const auto e = static_cast<std::size_t>(lots_->expert[i]);
    const double bought = demand_[i] * (price.tau * partial[e] + whole[e]);
    out.quota[i] = std::clamp(static_cast<std::int64_t>(bought), lots_->floor[i], lots_->demand[i]);
    out.tau[i] = price.tau;
    out.row[i] = price.row;
  }
}

/// Gives (or takes back) `rest` as the lots' bounds allow; returns what is left of it.
std::int64_t Buyer::adjust(std::size_t begin, std::size_t end, std::int64_t rest,
                           Purchase& out) const {
  for (std::size_t i = begin; i < end && rest != 0; ++i) {
    std::int64_t& quota = out.quota[i];
    const std::int64_t step = rest > 0 ? std::min(rest, lots_->demand[i] - quota)
                                       : std::max(rest, lots_->floor[i] - quota);
    quota += step;
    rest -= step;
  }
  return rest;
}

void Buyer::buy(const PriceTable& prices, const Lots& lots, std::int64_t target,
                std::int64_t capacity, Purchase& out) {
  prices_ = &prices;
  lots_ = &lots;
  capacity_ = static_cast<double>(capacity);
  const std::size_t count = lots.size();
  demand_.resize(count);
  floor_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    demand_[i] = static_cast<double>(lots.demand[i]);
    floor_[i] = static_cast<double>(lots.floor[i]);
  }
  out.quota.resize(count);
  out.tau.resize(count);
  out.row.resize(count);
  const Price common = find([this](int row, double tau) { return of_all(row, tau); },
                            static_cast<double>(target), 0, prices.last());
  take(0, count, common, out);
  std::int64_t rest = target;
  for (int g = 0; g < lots.groups(); ++g) {
    const auto begin = static_cast<std::size_t>(lots.group_begin[static_cast<std::size_t>(g)]);
    const auto end = static_cast<std::size_t>(lots.group_begin[static_cast<std::size_t>(g) + 1]);
    std::int64_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += out.quota[i];
    }
    if (sum > capacity) {
      const auto of_this = [this, g](int row, double tau) { return of_group(g, row, tau); };
      int last = common.row;  // the group's row is not far above
      for (int far = 1; last < prices.last() && of_this(last, prices.knot(last)).value > capacity_;
           far *= 2) {
        last = std::min(last + far, prices.last());
      }
      take(begin, end, find(of_this, capacity_, common.row, last), out);
      sum = 0;
      for (std::size_t i = begin; i < end; ++i) {
        sum += out.quota[i];
      }
      sum = capacity - adjust(begin, end, capacity - sum, out);
    }
    rest -= sum;
  }
  for (int g = 0; g < lots.groups() && rest != 0; ++g) {
    const auto begin = static_cast<std::size_t>(lots.group_begin[static_cast<std::size_t>(g)]);
    const auto end = static_cast<std::size_t>(lots.group_begin[static_cast<std::size_t>(g) + 1]);
    std::int64_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += out.quota[i];
    }
    const std::int64_t part = std::min(rest, capacity - sum);
    rest -= part - adjust(begin, end, part, out);
  }
  LRMOE_ASSERT(rest == 0, "[quota] the target is not between the floors and what can be retained");
}

Variance variance_of(const PriceTable& prices, const Lots& lots, const Purchase& purchase) {
  const double* squares = prices.squares(prices.last());
  Variance variance;
  for (std::size_t i = 0; i < lots.size(); ++i) {
    const auto e = static_cast<std::size_t>(lots.expert[i]);
    const auto pairs = static_cast<double>(lots.demand[i]) / static_cast<double>(kOne);
    int row = purchase.row[i];
    double tau = purchase.tau[i];
    if (lots.demand[i] == 0) {
      continue;
    }
    const double bought =
        static_cast<double>(lots.demand[i]) * (tau * prices.partial(row)[e] + prices.whole(row)[e]);
    if (bought < static_cast<double>(std::max<std::int64_t>(lots.floor[i], 1))) {
      // The floor is more than the price buys: the tau that buys just that.
      const double share = static_cast<double>(std::max<std::int64_t>(purchase.quota[i], 1)) /
                           static_cast<double>(lots.demand[i]);
      int low = 0;
      int high = prices.last();
      while (low < high) {
        row = (low + high) / 2;
        if (prices.knot(row) * prices.partial(row)[e] + prices.whole(row)[e] <= share) {
          high = row;
        } else {
          low = row + 1;
        }
      }
      row = low;
      tau = row == 0 ? prices.knot(0) : (share - prices.whole(row)[e]) / prices.partial(row)[e];
    }
    variance.added += pairs * prices.added_variance(row, tau, static_cast<int>(e));
    variance.squares += pairs * squares[e];
  }
  return variance;
}

}  // namespace lrmoe::plan
