// How pairs travel from their token's rank to an expert's rank and back: who
// sends which rows where, and how the received pairs line up for the grouped
// GEMMs. Indices only; the same structure serves the forward pass (all pairs)
// and the backward pass (kept pairs).
//
// A token travels once to each rank to which one of its pairs goes: a *row*.
// Source order of the pairs: (destination, expert, token). Destination order:
// (expert's slot, source, token), so every expert's pairs are contiguous.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "lrmoe/comm/communicator.h"
#include "lrmoe/moe/expert_slots.h"
#include "lrmoe/plan/pairs.h"

namespace lrmoe::moe {

using plan::route_pairs;
using plan::RoutedPairs;

/// Pairs of one slot in destination order.
struct Group {
  int slot = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct Dispatch {
  // At the source.
  std::vector<std::int64_t> send_pairs, send_rows;  // [R]
  at::Tensor pair;                                  // [P] int64: the pairs in source order
  at::Tensor row_token;       // [N] int64: token of each row sent, by destination, then token
  at::Tensor sent_row_pairs;  // [P] int64: the pairs (in source order) of row 0, of row 1, ...
  at::Tensor sent_row_begin;  // [N + 1] int64
  at::Tensor token_rows;      // [N] int64: the rows of token 0, of token 1, ... in order of rank
  at::Tensor token_begin;     // [T + 1] int64: where each token's rows begin in token_rows
  // At the destination.
  std::vector<std::int64_t> receive_pairs, receive_rows;  // [R]
  std::vector<Group> groups;  // every instance of this rank, in order of slot; may be empty ranges
  at::Tensor arrival;         // [P'] int64: where the i-th pair stands in order of arrival
  at::Tensor place;           // [P'] int64: the inverse: where the i-th arrived pair stands
  at::Tensor row;             // [P'] int64: its row among the received rows
  // [P'] int64: the pairs (in destination order) of row 0, of row 1, ...; within a row by
  // expert, as at the source, so that a sum over a row has the same bits at both ends.
  at::Tensor row_pairs;
  at::Tensor row_begin;  // [N' + 1] int64

  /// Bytes of index data sent to other ranks to build this.
  std::int64_t index_bytes = 0;
};

/// Builds both sides. Collective: exchanges row counts and the pairs' rows;
/// pair counts come from `receives`, the routes to this rank.
///   tokens: T of this rank; top_k: k, to find a pair's token.
Dispatch make_dispatch(comm::Communicator& communicator, const RoutedPairs& pairs,
                       std::int64_t tokens, int top_k, const plan::Split& receives,
                       const ExpertSlots& slots);

/// out[i] = sum of weight * rows over rows listed [begin[i], begin[i + 1]) in
/// `index`, in that order, accumulated in fp32 or wider. weights: [index] or
/// undefined for 1.
at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& index, const at::Tensor& begin,
                    const at::Tensor& weights);

}  // namespace lrmoe::moe
