#include "lrmoe/plan/options.h"

#include <algorithm>

namespace lrmoe::plan {

const char* name_of(Activations activations) {
  return activations == Activations::keep        ? "keep"
         : activations == Activations::recompute ? "recompute"
                                                 : "quota";
}

bool leaves_out(const LrmoeOptions& options) {
  return options.ratio < 1.0 || options.variance > 0.0 || options.time > 0.0 ||
         options.shortlist < 1.0;
}

int statistics_of(const LrmoeOptions& options) {
  const bool two = options.metric == Metric::update_norm || options.metric == Metric::update_router;
  const int of_metric = two ? 2 : options.metric == Metric::down_norm ? 1 : 0;
  const bool output = options.shortlist < 1.0 && options.shortlist_by == ShortlistBy::output;
  return of_metric + (output ? 1 : 0);
}

std::int64_t shortlist_size(const LrmoeOptions& options, std::int64_t pairs) {
  const auto share =
      static_cast<std::int64_t>(options.shortlist * static_cast<double>(pairs) + 0.5);
  return std::clamp<std::int64_t>(share, std::min<std::int64_t>(pairs, 1), pairs);
}

}  // namespace lrmoe::plan
