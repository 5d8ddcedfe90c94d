#include "lrmoe/plan/cells.h"

#include <algorithm>
#include <numeric>

#include "lrmoe/base/hash.h"
#include "lrmoe/plan/fixed_point.h"

namespace lrmoe::plan {
namespace {

/// Shares `quota` of `all` pairs among cells that come one after the other: the
/// differences of floor(quota * pairs so far / all) are exact in sum.
class Shares {
 public:
  std::int64_t next(std::int64_t quota, std::int64_t pairs, std::int64_t all) {
    const std::int64_t before = given_;
    so_far_ += pairs;
    given_ = mul_div(quota, so_far_, all);
    return given_ - before;
  }

 private:
  std::int64_t so_far_ = 0;
  std::int64_t given_ = 0;
};

}  // namespace

Split listed_routes(const Split& forward, const Counts& listed) {
  const Counts all = source_counts(forward, listed.rows, listed.cols);
  Split out;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    const Route& route = forward[i];
    const bool first =
        i == 0 || forward[i - 1].source != route.source || forward[i - 1].expert != route.expert;
    begin = first ? 0 : begin;
    const std::int64_t share =
        listed_share(listed.at(route.source, route.expert), all.at(route.source, route.expert),
                     begin, begin + route.pairs);
    begin += route.pairs;
    if (share > 0) {
      out.push_back({route.source, route.expert, route.rank, static_cast<std::int32_t>(share)});
    }
  }
  return out;
}

std::vector<Cell> cells_of_routes(const Split& forward, const Loads& quota) {
  const Loads loads = expert_loads(forward, quota.rows, quota.cols);
  Table<Shares> shares(quota.rows, quota.cols);
  std::vector<Cell> cells;
  cells.reserve(forward.size());
  for (const Route& route : forward) {
    const int e = route.expert;
    const int r = route.rank;
    Cell cell{route.source, route.expert, route.rank, route.pairs};
    cell.quota = shares.at(e, r).next(quota.at(e, r), route.pairs, loads.at(e, r));
    cells.push_back(cell);
  }
  return cells;
}

std::vector<Cell> cells_of_sources(const Counts& pairs, std::span<const std::int64_t> quota) {
  const auto all = pairs_per_expert(pairs);
  std::vector<Shares> shares(all.size());
  std::vector<Cell> cells;
  for (int r = 0; r < pairs.rows; ++r) {
    for (int e = 0; e < pairs.cols; ++e) {
      if (pairs.at(r, e) > 0) {
        const auto i = static_cast<std::size_t>(e);
        Cell cell{r, e, -1, pairs.at(r, e)};
        cell.quota = shares[i].next(quota[i], cell.demand, all[i]);
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

void draw_counts(std::span<Cell> cells, std::int64_t draw) {
  // They come by source, so a stable sort by (rank, expert) gives the line's order.
  std::int32_t experts = 0;
  std::int32_t ranks = 0;
  for (const Cell& cell : cells) {
    experts = std::max(experts, cell.expert + 1);
    ranks = std::max(ranks, cell.rank + 2);
  }
  const auto bucket = [&](const Cell& cell) {
    return static_cast<std::size_t>(cell.rank + 1) * static_cast<std::size_t>(experts) +
           static_cast<std::size_t>(cell.expert);
  };
  std::vector<std::int64_t> line(
      static_cast<std::size_t>(experts) * static_cast<std::size_t>(ranks) + 1, 0);
  for (const Cell& cell : cells) {
    line[bucket(cell) + 1] += cell.quota;
  }
  std::partial_sum(line.begin(), line.end(), line.begin());
  for (Cell& cell : cells) {
    std::int64_t& end = line[bucket(cell)];
    cell.begin = end;
    end += cell.quota;
    cell.keep = points_between(cell.begin, end, draw);
  }
}

std::int64_t selection_draw(std::uint64_t seed, std::int64_t step, std::int64_t micro_batch,
                            int layer) {
  const std::uint64_t bits =
      hash({seed, hash("draw"), static_cast<std::uint64_t>(step),
            static_cast<std::uint64_t>(micro_batch), static_cast<std::uint64_t>(layer)});
  return static_cast<std::int64_t>(bits >> (64 - kQuotaBits));
}

}  // namespace lrmoe::plan
