#include "lrmoe/trace/workloads.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/names.h"
#include "lrmoe/trace/popularity.h"
#include "lrmoe/trace/portable_math.h"
#include "lrmoe/trace/token_imbalance.h"
#include "lrmoe/trace/writer.h"

namespace lrmoe::trace {
namespace {

// Of the gates' logits, in powers of two: softmax of logits with a standard deviation
// of 0.6. Half of the pairs then hold 70% of the gates, as in traces of real models.
constexpr double kGateSpread = 0.6 * 1.4426950408889634;

/// P% of the tokens choose among N experts.
struct Share {
  double percent = 0.0;
  int experts = 0;
};

std::optional<Share> parse_share(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) {
    return {};
  }
  Share share;
  const char* begin = name.data();
  const auto percent = std::from_chars(begin, begin + colon, share.percent);
  const auto experts = std::from_chars(begin + colon + 1, begin + name.size(), share.experts);
  const bool whole = percent.ec == std::errc{} && percent.ptr == begin + colon &&
                     experts.ec == std::errc{} && experts.ptr == begin + name.size();
  return whole ? std::optional(share) : std::nullopt;
}

std::string full_name(const std::string& name) {
  for (const std::string& known : token_imbalance_names()) {
    if (name == known || name == known.substr(0, known.find('_'))) {
      return known;
    }
  }
  return name;
}

void check_real(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    throw InputError(std::string(what) + " = " + print_number(value) + " will not do; it takes " +
                     print_number(low) + " to " + print_number(high));
  }
}

void check_whole(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    throw InputError(std::string(what) + " = " + std::to_string(value) + " will not do; it takes " +
                     std::to_string(low) + " to " + std::to_string(high));
  }
}

/// Rank r's share of the tokens: equal ones, or ragged, in proportion to r + 1.
std::vector<std::int32_t> make_sources(std::int64_t tokens, int ranks, bool ragged) {
  std::vector<std::int32_t> sources;
  sources.reserve(static_cast<std::size_t>(tokens));
  const std::int64_t all = std::int64_t{ranks} * (ranks + 1) / 2;
  const std::int64_t each = tokens / ranks, longer = tokens % ranks;
  for (std::int64_t r = 0, end = 0; r < ranks; ++r) {
    end = ragged ? tokens / all * ((r + 1) * (r + 2) / 2) +
                       tokens % all * ((r + 1) * (r + 2) / 2) / all
                 : end + each + (r < longer ? 1 : 0);
    sources.resize(static_cast<std::size_t>(end), static_cast<std::int32_t>(r));
  }
  return sources;
}

/// Softmax over a token's experts, in [gates, gates + k).
void make_gates(Random& random, std::size_t k, float* gates) {
  double sum = 0.0;
  std::vector<double> weights(k);
  for (double& weight : weights) {
    weight = portable_exp2(kGateSpread * random.normal());
    sum += weight;
  }
  for (std::size_t j = 0; j < k; ++j) {
    gates[j] = static_cast<float>(weights[j] / sum);
  }
}

}  // namespace

struct Workload::Impl {
  WorkloadOptions options;
  std::optional<Share> share;
  bool token_imbalance = false;

  std::uint64_t bits(const char* what, std::int64_t step, std::int64_t layer) const {
    return hash({hash(options.name), options.seed, hash(what), static_cast<std::uint64_t>(step),
                 static_cast<std::uint64_t>(layer)});
  }

  /// Who is popular, 0 being the most: drawn for every layer.
  std::vector<std::size_t> order(int layer) const {
    std::vector<std::size_t> found(static_cast<std::size_t>(options.experts));
    std::iota(found.begin(), found.end(), std::size_t{0});
    Random random(bits("order", 0, layer));
    for (std::size_t i = found.size(); i > 1; --i) {
      std::swap(found[i - 1], found[random.below(i)]);
    }
    return found;
  }

  /// Log-popularity of the experts, standard normal; a step keeps 1 - drift of its
  /// variance from the step before.
  std::vector<double> log_popularity(int step, int layer) const {
    const double fresh = options.name == "drift" ? options.drift : 0.0;
    const double kept = fresh < 1.0 ? portable_pow(1.0 - fresh, 0.5) : 0.0;
    const double added = fresh > 0.0 ? portable_pow(fresh, 0.5) : 0.0;
    std::vector<double> z(static_cast<std::size_t>(options.experts), 0.0);
    for (int s = 0; s <= (fresh > 0.0 ? step : 0); ++s) {
      Random random(bits("popularity", s, layer));
      for (double& x : z) {
        const double draw = random.normal();
        x = s == 0 ? draw : kept * x + added * draw;
      }
    }
    return z;
  }

  std::vector<double> chances_of(int step, int layer) const {
    if (options.name == "zipf") {
      std::vector<double> weights(static_cast<std::size_t>(options.experts));
      const std::vector<std::size_t> place = order(layer);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[place[i]] = portable_pow(static_cast<double>(i + 1), -options.exponent);
      }
      return chances(weights, options.top_k);
    }
    return lognormal_chances(log_popularity(step, layer), options.top_k, options.max_mean);
  }

  /// P:N: a hot token chooses among the N hot experts (all of them and k - N others
  /// where N < k), any other token among the rest (likewise).
  void choose_by_share(Random& random, int layer, std::vector<std::int32_t>& ids) const {
    const std::vector<std::size_t> place = order(layer);
    const auto k = static_cast<std::size_t>(options.top_k);
    const auto n = static_cast<std::size_t>(share->experts);
    std::vector<std::int32_t> hot(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(n));
    std::vector<std::int32_t> cold(place.begin() + static_cast<std::ptrdiff_t>(n), place.end());
    const auto draw = [&](std::vector<std::int32_t>& pool, std::size_t count, std::int32_t* out) {
      for (std::size_t i = 0; i < count; ++i) {
        std::swap(pool[i], pool[i + random.below(pool.size() - i)]);
        out[i] = pool[i];
      }
    };
    for (std::size_t t = 0; t < ids.size(); t += k) {
      const bool is_hot = random.uniform() * 100.0 < share->percent;
      std::vector<std::int32_t>& first = is_hot ? hot : cold;
      const std::size_t taken = std::min(k, first.size());
      draw(first, taken, ids.data() + t);
      draw(is_hot ? cold : hot, k - taken, ids.data() + t + taken);
    }
  }

  void check() const {
    const std::vector<std::string> names = workload_names();
    if (!share && std::find(names.begin(), names.end(), options.name) == names.end()) {
      throw InputError("unknown workload " + quote(options.name) + "; there are: " + join(names) +
                       ", and P:N for any other percentage and number of experts");
    }
    check_whole("experts", options.experts, 1, kMostExperts);
    check_whole("top-k", options.top_k, 1, options.experts);
    check_whole("tokens", options.tokens, 1, 1'000'000'000);
    check_whole("steps", options.steps, 1, 1'000'000);
    check_whole("layers", options.layers, 1, kMostLayers);
    check_whole("ranks", options.ranks, 0, kMostRanks);
    check_real("exponent", options.exponent, 0.0, 20.0);
    check_real("drift", options.drift, 0.0, 1.0);
    if (options.name == "lognormal" || options.name == "drift") {
      check_real("max-mean", options.max_mean, 1.0,
                 static_cast<double>(options.experts) / options.top_k);
    }
    if (share) {
      check_real("the percentage of hot tokens", share->percent, 0.0, 100.0);
      check_whole("the number of hot experts", share->experts, 1, options.experts);
    }
  }
};

std::vector<std::string> workload_names() {
  std::vector<std::string> names = token_imbalance_names();
  names.insert(names.end(), {"zipf", "80:4", "lognormal", "drift"});
  return names;
}

Workload::Workload(const WorkloadOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->options.name = full_name(options.name);
  impl->share = parse_share(options.name);
  const std::vector<std::string>& known = token_imbalance_names();
  impl->token_imbalance = std::find(known.begin(), known.end(), impl->options.name) != known.end();
  impl->check();
  if (impl->token_imbalance) {  // a pool that is too small shows before anything is written
    token_imbalance_ids(impl->options.name, options.experts, options.top_k, 0, 0, 3, 0);
  }
  impl_ = std::move(impl);
}

Workload::~Workload() = default;

Info Workload::info() const {
  const WorkloadOptions& o = impl_->options;
  Info info;
  info.model = "generated";
  info.source = "lrmoe trace make --workload " + o.name + " --seed " + std::to_string(o.seed);
  if (o.name == "zipf") {
    info.source += " --exponent " + print_number(o.exponent);
  }
  if (o.name == "lognormal" || o.name == "drift") {
    info.source += " --max-mean " + print_number(o.max_mean);
  }
  if (o.name == "drift") {
    info.source += " --drift " + print_number(o.drift);
  }
  info.experts = o.experts;
  info.top_k = o.top_k;
  info.steps = o.steps;
  info.layers = o.layers;
  info.ranks = o.ranks;
  return info;
}

Routing Workload::make(int step, int layer) const {
  const WorkloadOptions& o = impl_->options;
  const auto k = static_cast<std::size_t>(o.top_k);
  Routing routing;
  routing.tokens = o.tokens;
  routing.top_k = o.top_k;
  Random random(impl_->bits("choice", step, layer));
  if (impl_->token_imbalance) {
    routing.ids = token_imbalance_ids(o.name, o.experts, o.top_k, o.tokens, o.seed, step, layer);
  } else {
    routing.ids.resize(static_cast<std::size_t>(o.tokens) * k);
    if (impl_->share) {
      impl_->choose_by_share(random, layer, routing.ids);
    } else {
      Chooser chooser(impl_->chances_of(step, layer), o.top_k, random);
      for (std::size_t t = 0; t < routing.ids.size(); t += k) {
        chooser.choose(routing.ids.data() + t);
      }
    }
  }
  routing.gates.resize(routing.ids.size());
  Random gates(impl_->bits("gates", step, layer));
  for (std::size_t t = 0; t < routing.gates.size(); t += k) {
    make_gates(gates, k, routing.gates.data() + t);
    if (!impl_->token_imbalance) {  // as routers give them: the largest first
      std::sort(routing.gates.data() + t, routing.gates.data() + t + k, std::greater<>());
    }
  }
  if (o.ranks > 0) {
    routing.sources = make_sources(o.tokens, o.ranks, o.name == "W4_source_ragged");
  }
  return routing;
}

void make_trace(const WorkloadOptions& options, const std::filesystem::path& path) {
  const Workload workload(options);
  Writer writer(path, workload.info(), {.sources = options.ranks > 0, .scores = false});
  for (int s = 0; s < options.steps; ++s) {
    for (int l = 0; l < options.layers; ++l) {
      writer.append(workload.make(s, l));
    }
  }
  writer.commit();
}

}  // namespace lrmoe::trace
