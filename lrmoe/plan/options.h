// Settings of the strategies that train on a part of the pairs: the section
// `[lrmoe]` of a configuration. Keys and values have the same names there.
#pragma once

#include <cstdint>
#include <optional>

namespace lrmoe::plan {

/// How a cell's quota is filled (docs/design.md, "Selection").
enum class SelectMode : std::uint8_t { sampled, top };
/// What the forward pass leaves for the backward pass (docs/design.md, "Memory").
enum class Activations : std::uint8_t { keep, recompute, quota };
/// When the placement of a step is planned: from the demand of the step before, or
/// from its own, where replica weights are fetched before the GEMMs.
enum class Placing : std::uint8_t { next_step, in_step };
/// Estimate of a pair's share in its expert's update.
enum class Metric : std::uint8_t {
  gate,
  gate_grad,
  down_norm,
  update_norm,
  update_router,
  exact,
  random
};
enum class ShortlistBy : std::uint8_t { gate, output };
enum class RouterGradient : std::uint8_t { centred, remainder, kept, exact };

struct LrmoeOptions {
  double ratio = 0.25;    // rho: share of the pairs that the backward pass keeps; 1: all
  double variance = 0.0;  // above 0: ceiling on the predicted added variance, in place of ratio
  SelectMode mode = SelectMode::sampled;
  Metric metric = Metric::update_router;
  double shortlist = 1.0;  // share of the pairs that may be selected at all; 1: off
  ShortlistBy shortlist_by = ShortlistBy::gate;
  RouterGradient router_gradient = RouterGradient::centred;
  /// None: `recompute` where pairs are left out, `keep` where none are (a ratio of 1, no
  /// other target and no shortlist). make_strategy fills it in.
  std::optional<Activations> activations;
  double floor = 0.02;  // least share of an expert's pairs that is kept (at most `ratio`)
  /// Above 0: a layer whose predicted added variance is higher keeps all pairs.
  double variance_limit = 0.0;
  double slack = 0.01;  // retained load of a rank <= (1 + slack) * mean
  double time = 0.0;    // above 0: ceiling on a layer's backward seconds, in place of ratio
  Placing placing = Placing::next_step;
  bool operator==(const LrmoeOptions&) const = default;
};

/// InputError that names the key, its value and its range.
void check_options(const LrmoeOptions& options);

/// As configurations name it.
const char* name_of(Activations activations);

/// False where every plan keeps all pairs.
bool leaves_out(const LrmoeOptions& options);

/// fp32 numbers per pair that travel back with the combine: 0 to 3.
int statistics_of(const LrmoeOptions& options);

/// How many of a rank's pairs are on its shortlist: one at least.
std::int64_t shortlist_size(const LrmoeOptions& options, std::int64_t pairs);

}  // namespace lrmoe::plan
