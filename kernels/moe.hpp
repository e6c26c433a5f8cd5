// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mixture of experts around the experts' GEMMs: routing, dispatch of rows to experts, and combining them again. No
// capacity limit: no token is dropped.
//
// N tokens choose K of E experts each. Slot t·K + k is token t's k-th choice, best first. Rows are slots sorted by
// expert, then by slot, so that the rows of an expert are contiguous: expert e has rows [offsets[e], offsets[e+1]) of
// N·K.

#include "kernels/padding.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// What a token's K experts weigh: their probabilities, these divided by their sum, or the sigmoids of their logits.
enum class ExpertWeights : unsigned char { probabilities, normalized, sigmoids };

struct RouteArgs {
  TensorView logits;   // (N, E), of stat_dtype, as probs and weights: fp32 with 16-bit activations
  TensorView probs;    // (N, E): softmax, written; may be logits
  TensorView experts;  // (N, K) int32: the K largest, descending; the lowest index among equals
  TensorView weights;  // (N, K)
  ExpertWeights weigh = ExpertWeights::normalized;
  /// (E) f64, written: choices of each expert, and Σ over tokens of its probability; absent: not written.
  TensorView counts, sums;
  TokenFields fields;  // tell which tokens are padding: they are routed, but not counted
};
void route(const RouteArgs& args, StreamView stream);

struct RouteBackwardArgs {
  TensorView dweights;  // (N, K)
  TensorView probs, experts, weights;
  ExpertWeights weigh = ExpertWeights::normalized;
  /// (E) f64: gradient of the balance loss, added to that of every token's probabilities; absent: none.
  TensorView balance;
  TokenFields fields;  // tell which tokens are padding: their gradient is 0
  TensorView dlogits;  // (N, E) of the activations' type, overwritten; may be probs if dtypes agree
};
void route_backward(const RouteBackwardArgs& args, StreamView stream);

/// The permutation between slots and rows; int32.
struct Dispatch {
  TensorView slots;    // (N·K): the slot of each row
  TensorView rows;     // (N·K): the row of each slot
  TensorView offsets;  // (E + 1)
};
/// Sorts the slots by the chosen `experts` (N, K).
void make_dispatch(const TensorView& experts, const Dispatch& dispatch, StreamView stream);

/// y[row] = x[token of row]: (N, C) to (N·K, C).
void gather_rows(const TensorView& x, const Dispatch& dispatch, const TensorView& y, StreamView stream);

struct CombineArgs {
  TensorView x;        // (N·K, C), rows
  TensorView weights;  // (N, K) of stat_dtype; absent: 1
  Dispatch dispatch;
  TensorView y;             // (N, C)
  bool accumulate = false;  // y += Σ over k, in order, of weight·x[row]; or overwrites; rounded once
};
void combine_rows(const CombineArgs& args, StreamView stream);

/// Backward of rows times their weights, in combine_rows or before it: dweights[slot] = a[row]·b[row] (dot product),
/// then a and b times the slot's weight. Without b and dweights only a is multiplied.
struct CombineWeightsBackwardArgs {
  TensorView a, b;     // (N·K, C), in place; b may be absent
  TensorView weights;  // (N, K), as dweights of stat_dtype
  Dispatch dispatch;
  TensorView dweights;  // (N, K); absent if b is
};
void combine_weights_backward(const CombineWeightsBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
