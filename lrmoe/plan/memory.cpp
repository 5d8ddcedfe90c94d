#include "lrmoe/plan/memory.h"

#include <algorithm>

#include "lrmoe/plan/cells.h"
#include "lrmoe/plan/tables.h"

namespace lrmoe::plan {
namespace {

constexpr double kMostBytes = 0x1p60;

/// What one phase brings to a rank: tokens T, pairs and rows sent from here, pairs P
/// and rows N that arrive.
struct Traffic {
  std::int64_t tokens = 0, pairs_out = 0, rows_out = 0, pairs = 0, rows = 0;

  Traffic over(int chunks) const {
    const auto part = [&](std::int64_t x) { return (x + chunks - 1) / chunks; };
    return {part(tokens), part(pairs_out), part(rows_out), part(pairs), part(rows)};
  }
};

std::vector<Traffic> traffic_of(const Plan& plan, const Split& split) {
  const int ranks = plan.cluster.ranks;
  std::vector<Traffic> out(static_cast<std::size_t>(ranks));
  Loads between(ranks, ranks);
  for (const Route& route : split) {
    between.at(route.source, route.rank) += route.pairs;
  }
  for (int s = 0; s < ranks; ++s) {
    Traffic& source = out[static_cast<std::size_t>(s)];
    for (const std::int32_t demand : plan.demand.row(s)) {
      source.tokens += demand;
    }
    source.tokens /= plan.cluster.top_k;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t pairs = between.at(s, r);
      const std::int64_t rows =
          expected_rows(source.tokens, pairs, plan.cluster.top_k, plan.cluster.experts);
      source.pairs_out += pairs;
      source.rows_out += rows;
      out[static_cast<std::size_t>(r)].pairs += pairs;
      out[static_cast<std::size_t>(r)].rows += rows;
    }
  }
  return out;
}

/// Pairs and rows whose activations stay where their forward pass ran.
std::vector<Traffic> kept_traffic(const Plan& plan, const MemoryModel& model) {
  const bool whole = plan.keep_all || model.oracle;
  if (model.activations == Activations::recompute && !model.oracle) {
    return std::vector<Traffic>(static_cast<std::size_t>(plan.cluster.ranks));
  }
  if (whole || (!plan.listed && model.activations != Activations::quota)) {
    return traffic_of(plan, plan.forward);
  }
  Split stays;
  if (model.activations == Activations::quota) {
    // An instance caches as many of its pairs as its backward pass has.
    const int experts = plan.cluster.experts;
    const Loads forward = expert_loads(plan.forward, experts, plan.cluster.ranks);
    const Loads backward = expert_loads(plan.backward, experts, plan.cluster.ranks);
    for (Route route : plan.forward) {
      const std::int64_t there = forward.at(route.expert, route.rank);
      const std::int64_t room = std::min(there, backward.at(route.expert, route.rank));
      route.pairs = static_cast<std::int32_t>(room * route.pairs / there);
      stays.push_back(route);
    }
    return traffic_of(plan, stays);
  }
  for (const Cell& cell : plan.cells) {
    if (cell.rank >= 0) {
      stays.push_back({cell.source, cell.expert, cell.rank, cell.demand});
    }
  }
  return traffic_of(plan, stays);
}

/// Of tokens that stand for `scale` each.
std::int64_t scaled(std::int64_t bytes, double scale) {
  return scale == 1 ? bytes
                    : static_cast<std::int64_t>(
                          std::min(static_cast<double>(bytes) * scale + 0.5, kMostBytes));
}

/// The largest sum of three terms over the moments of a phase.
struct Peak {
  std::int64_t activations = 0, buffers = 0, workspace = 0;
  void at(std::int64_t a, std::int64_t b, std::int64_t w) {
    if (a + b + w > activations + buffers + workspace) {
      activations = a;
      buffers = b;
      workspace = w;
    }
  }
};

/// Bytes on one rank, piece by piece.
class RankBytes {
 public:
  RankBytes(const Plan& plan, const MemoryModel& model, const Traffic& forward,
            const Traffic& backward, const Traffic& kept)
      : model_(model),
        selects_(!plan.keep_all),
        scores_(selects_ || plan.score),
        caches_(selects_ && model.activations == Activations::quota),
        part_(!model.oracle &&
              (caches_ || (plan.listed && model.activations == Activations::keep))),
        keeps_(model.activations != Activations::recompute || (model.oracle && scores_)),
        d_(model.hidden * model.activation_bytes),
        n_(model.width * model.activation_bytes),
        chunks_(std::max(model.chunks, 1)),
        top_k_(plan.cluster.top_k),
        all_(forward),
        one_(forward.over(chunks_)),
        back_((selects_ ? backward : forward).over(chunks_)),
        kept_(kept),
        kept_one_(kept.over(chunks_)) {}

  Peak forward() const;
  Peak backward() const;
  /// What stays between the two; with scores also o and the statistics.
  std::int64_t kept() const {
    const std::int64_t scoring = scores_ ? all_.tokens * d_ + statistics(all_.tokens * top_k_) : 0;
    return kept_of_all() + scoring;
  }

 private:
  // Indices of a dispatch: int64 (moe/dispatch.h).
  std::int64_t indices(const Traffic& t) const {
    return model_.index_bytes *
           (2 * t.pairs_out + 3 * t.rows_out + t.tokens + 4 * t.pairs + t.rows);
  }
  // What a block of a pass over `rows` rows holds (in_blocks in moe/chunks.h).
  static std::int64_t block(std::int64_t rows) {
    return std::min(rows, std::max<std::int64_t>(256, (rows + 15) / 16));
  }
  // Sums are made in wider numbers than activations have.
  bool wide() const { return model_.activation_bytes < model_.gate_bytes; }
  std::int64_t kept_rows(const Traffic& t) const { return t.rows * d_ + t.pairs * 2 * n_; }
  // Of some forward traffic: indices and gates that stay, and y at the source.
  std::int64_t kept_numbers(const Traffic& t, const Traffic& kept) const {
    const bool whole = !selects_ || (model_.oracle && scores_);
    const std::int64_t index = model_.index_bytes;
    const std::int64_t places = keeps_ ? 2 * index * t.pairs : 0;
    const std::int64_t compact = keeps_ && part_ ? index * (t.pairs + kept.pairs) : 0;
    return whole ? indices(t) + t.pairs * model_.gate_bytes
                 : index * t.pairs_out + places + compact;
  }
  std::int64_t outputs(const Traffic& t) const {
    return selects_ && model_.outputs ? t.pairs_out * d_ : 0;
  }
  // All of the pass's activations but o and the statistics.
  std::int64_t kept_of_all() const {
    return kept_rows(kept_) + kept_numbers(all_, kept_) + outputs(all_);
  }
  std::int64_t statistics(std::int64_t pairs) const {
    return scores_ ? model_.statistic_bytes * model_.statistics * pairs : 0;
  }

  const MemoryModel& model_;
  bool selects_, scores_, caches_, part_, keeps_;  // part_: of some pairs only
  std::int64_t d_, n_;                             // bytes of d and n elements
  int chunks_;
  int top_k_;
  Traffic all_, one_;        // forward: the pass, a chunk
  Traffic back_;             // backward: a chunk
  Traffic kept_, kept_one_;  // what the forward pass leaves: the pass, a chunk
};

Peak RankBytes::forward() const {
  const Traffic& t = one_;
  const std::int64_t out = all_.tokens * d_;
  const std::int64_t source_statistics = statistics(all_.tokens * top_k_);
  const bool chunked = chunks_ > 1;
  // What the chunks before the last left; o is there from the start.
  std::int64_t before = (kept_of_all() - kept_of_all() / chunks_) * (chunked ? 1 : 0);
  before += chunked ? (scores_ ? out : 0) + source_statistics : 0;
  const std::int64_t whole_out = chunked && !scores_ ? out : 0;

  const std::int64_t numbers = indices(t) + 2 * t.pairs * model_.gate_bytes;
  const std::int64_t held = before + numbers;
  const std::int64_t rows = t.rows * d_;
  const std::int64_t gate_up = t.pairs * 2 * n_;
  const std::int64_t left_rows = keeps_ ? rows : 0;
  const std::int64_t left = keeps_ ? kept_rows(kept_one_) : 0;
  const std::int64_t a = t.pairs * n_;
  const std::int64_t y = t.pairs * d_;
  const std::int64_t sent = t.rows_out * d_;
  Peak peak;
  peak.at(held, whole_out + sent + rows, 0);          // x rows out and in
  peak.at(held, whole_out + rows, y);                 // x of each pair
  peak.at(held + left_rows, whole_out, y + gate_up);  // g, u
  const std::int64_t blocks = statistics(1) > 0 ? block(t.pairs) * (wide() ? 6 : 3) * n_ : 0;
  peak.at(held + left_rows + gate_up, whole_out, a + blocks + statistics(t.pairs));
  if (part_ && keeps_) {
    peak.at(held + left_rows + gate_up + kept_one_.pairs * 2 * n_, whole_out, a);
    peak.at(held + left + left_rows, whole_out, a);
  }
  peak.at(held + left, whole_out, a + y + statistics(t.pairs));  // y
  if (outputs(t) > 0) {
    peak.at(held + left, whole_out, 2 * y);
    peak.at(held + left + outputs(t), whole_out, y);
    peak.at(held + left + outputs(t), whole_out + sent, 0);
  } else {
    const std::int64_t columns = std::min<std::int64_t>(model_.hidden, 128) * model_.gate_bytes;
    peak.at(held + left, whole_out + rows,
            y + (wide() ? (t.pairs + t.rows) * columns : 0));  // sums of rows
    peak.at(held + left, whole_out + rows + sent, 0);          // rows back
  }
  peak.at(held + left + outputs(t) + (scores_ && !chunked ? source_statistics : 0),
          whole_out + sent + t.tokens * d_, 0);  // sums of tokens
  return peak;
}

Peak RankBytes::backward() const {
  const Traffic& t = back_;
  const bool again = model_.activations == Activations::recompute;
  const std::int64_t gates = all_.tokens * top_k_ * model_.gate_bytes;
  const std::int64_t all = kept_of_all();
  Peak peak;
  if (scores_) {
    peak.at(kept(), 0, 2 * gates);
  }
  const std::int64_t dx = chunks_ > 1 ? all_.tokens * d_ : 0;
  const std::int64_t numbers =
      selects_ ? gates + indices(t) + t.pairs * (4 * model_.gate_bytes + 2 * model_.index_bytes)
               : 0;
  const std::int64_t gate_up = t.pairs * 2 * n_;
  const std::int64_t pairs_d = t.pairs * d_;
  const std::int64_t rows = t.rows * d_;
  const std::int64_t sent = t.rows_out * d_;
  std::int64_t held = all + numbers;  // with the rows and g, u of this chunk
  std::int64_t x_rows = kept_one_.rows * d_;
  peak.at(held, dx + sent + rows, 0);  // delta rows out and in
  if (caches_) {
    // How many are not cached is known when they are selected: at most all.
    peak.at(held, dx + sent + 2 * rows, 0);
    peak.at(held, dx + 2 * rows, gate_up + pairs_d + gate_up);
    held += rows + gate_up - kept_one_.pairs * 2 * n_;
    x_rows += rows;
  } else if (again) {
    peak.at(held, dx + sent + 2 * rows, 0);
    peak.at(held, dx + 2 * rows, pairs_d + gate_up);
    held += rows + gate_up;
    x_rows = rows;
  } else if (selects_) {
    peak.at(held + gate_up, dx + rows, 0);
    held += gate_up - kept_one_.pairs * 2 * n_;
  }
  const std::int64_t blocks =
      block(t.pairs) *
      (selects_ ? std::max((wide() ? 10 : 4) * n_, (wide() ? 4 : 1) * d_) : 3 * n_);
  peak.at(held, dx + rows, pairs_d);                       // delta of each pair
  peak.at(held, dx, pairs_d + t.pairs * 2 * n_ + blocks);  // a, r
  peak.at(held, dx, pairs_d);                              // x of each pair
  held -= x_rows;
  peak.at(held, dx, pairs_d);  // dx of each pair
  held -= gate_up;
  peak.at(held, dx + rows, pairs_d);            // sums of rows
  peak.at(held, dx + rows + sent, 0);           // rows back
  peak.at(held, dx + sent + t.tokens * d_, 0);  // sums of tokens
  return peak;
}

}  // namespace

std::int64_t expected_rows(std::int64_t tokens, std::int64_t pairs, int top_k, int experts) {
  if (pairs == 0) {
    return 0;
  }
  if (tokens == 0) {
    return pairs;
  }
  const double miss =
      1.0 - static_cast<double>(pairs) / (static_cast<double>(tokens) * static_cast<double>(top_k));
  double all_miss = 1.0;
  for (int k = 0; k < top_k; ++k) {
    // The k experts already seen were others'.
    const double left = experts > top_k ? (miss * experts - k) / (experts - k) : miss;
    all_miss *= std::max(0.0, left);
  }
  const auto rows = static_cast<std::int64_t>(static_cast<double>(tokens) * (1.0 - all_miss));
  return std::min({rows + 1, tokens, pairs});
}

void set_scores(MemoryModel& model, const LrmoeOptions& options) {
  model.statistics = statistics_of(options);
  model.outputs = options.router_gradient == RouterGradient::exact;
  model.oracle = options.metric == Metric::exact;
}

std::vector<MemoryTerms> phase_terms(const Plan& plan, const MemoryModel& model, Phase phase) {
  const std::vector<Traffic> forward = traffic_of(plan, plan.forward);
  const std::vector<Traffic> backward = traffic_of(plan, plan.backward);
  const std::vector<Traffic> kept = kept_traffic(plan, model);
  std::vector<MemoryTerms> terms;
  for (int rank = 0; rank < plan.cluster.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto row = plan.placement.row(rank);
    const std::int64_t used =
        std::count_if(row.begin(), row.end(), [](std::int32_t e) { return e >= 0; });
    const RankBytes bytes(plan, model, forward[r], backward[r], kept[r]);
    const Peak peak = phase == Phase::forward ? bytes.forward() : bytes.backward();
    MemoryTerms t;
    t.weights = used * 3 * model.hidden * model.width * model.weight_bytes;
    t.gradients = phase == Phase::forward ? 0 : t.weights;
    t.activations = scaled(peak.activations, model.scale);
    t.buffers = scaled(peak.buffers, model.scale);
    t.workspace = scaled(peak.workspace, model.scale);
    terms.push_back(t);
  }
  return terms;
}

std::vector<MemoryTerms> memory_terms(const Plan& plan, const MemoryModel& model) {
  std::vector<MemoryTerms> terms = phase_terms(plan, model, Phase::backward);
  const std::vector<MemoryTerms> forward = phase_terms(plan, model, Phase::forward);
  for (std::size_t r = 0; r < terms.size(); ++r) {
    MemoryTerms early = forward[r];
    early.gradients = terms[r].gradients;
    terms[r] = early.total() > terms[r].total() ? early : terms[r];
  }
  return terms;
}

std::vector<std::int64_t> kept_bytes(const Plan& plan, const MemoryModel& model) {
  const std::vector<Traffic> forward = traffic_of(plan, plan.forward);
  const std::vector<Traffic> backward = traffic_of(plan, plan.backward);
  const std::vector<Traffic> kept = kept_traffic(plan, model);
  std::vector<std::int64_t> bytes;
  for (std::size_t r = 0; r < forward.size(); ++r) {
    const RankBytes rank(plan, model, forward[r], backward[r], kept[r]);
    bytes.push_back(scaled(rank.kept(), model.scale));
  }
  return bytes;
}

MemoryTerms fullest(const std::vector<MemoryTerms>& terms) {
  const auto most = std::max_element(
      terms.begin(), terms.end(),
      [](const MemoryTerms& x, const MemoryTerms& y) { return x.total() < y.total(); });
  return most == terms.end() ? MemoryTerms{} : *most;
}

}  // namespace lrmoe::plan
