// The model beside its MoE layers: attention, dense MLPs, shared experts,
// routers, embedding and head, priced by a plain estimate (docs/clock.md). It is
// the same for all strategies and completes a step's end-to-end time.
#pragma once

#include <span>
#include <string_view>

#include "lrmoe/cost/clock.h"

namespace lrmoe::cost {

struct Rest {
  int layers = 0;        // of the whole model, dense ones included
  double attention = 0;  // parameters of a layer's projections
  double queries = 0;    // heads times the widths of a query and of a value
  double qkv = 0;        // elements of a token's queries, keys, values and heads' sums
  double shared = 0;     // parameters of the shared experts of a MoE layer
  double dense = 0;      // parameters of the MLP of a dense layer
  double vocabulary = 0;
};

/// The named model's, or `own`. Every name of shape_names() has one; InputError
/// for others.
Rest find_rest(std::string_view name, const Rest& own);

/// What ran. Of a model with more layers it is a slice: embedding and head are
/// charged in proportion to the layers.
struct RestWork {
  int moe_layers = 0;
  int dense_layers = 0;
  int sequence = 0;  // tokens that attend to each other
  int ranks = 1;
};

struct RestSeconds {
  double forward = 0;
  double backward = 0;
  double update = 0;  // all-reduce of the dense gradients, AdamW on every rank
  double total() const { return forward + backward + update; }
};

/// `tokens`: of each micro-batch on its fullest rank, before the scale.
RestSeconds price_rest(const RestWork& work, std::span<const std::int64_t> tokens, const Rest& rest,
                       const ClockOptions& options);

}  // namespace lrmoe::cost
