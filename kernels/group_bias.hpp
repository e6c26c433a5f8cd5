// SPDX-License-Identifier: Apache-2.0
#pragma once
// Biases of groups of rows, as of a mixture's experts: group e has rows [offsets[e], offsets[e+1]), and its own bias.

#include "kernels/moe.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct AddGroupBiasArgs {
  TensorView offsets;  // (E + 1) int32, ascending from 0 to R; absent: all rows are of one group
  TensorView bias;     // (E, C)
  TensorView y;        // (R, C) of bias's dtype, or fp32 if it is 16-bit: each row plus its group's bias, rounded once
};
void add_group_bias(const AddGroupBiasArgs& args, StreamView stream);

struct GroupBiasGradientArgs {
  Dispatch dispatch;        // offsets, and with `weights` slots
  TensorView dy;            // (R, C)
  TensorView weights;       // of each slot, of stat_dtype: factors of the rows of dy; absent: 1
  TensorView dbias;         // (E, C) of dy's dtype, or fp32 with 16-bit dy; a sum over a group's rows, rounded once
  bool accumulate = false;  // add to dbias, or overwrite it (a group without rows: with zeros)
};
void group_bias_gradient(const GroupBiasGradientArgs& args, StreamView stream);

/// What a bias of the experts' outputs adds to the gradients of the weights in combine_rows:
/// dweights[slot] += bias of the row's group · dy[row].
struct GroupBiasWeightsArgs {
  Dispatch dispatch;
  TensorView bias;      // (E, C)
  TensorView dy;        // (R, C) of bias's dtype: of each row's token, without its weight
  TensorView dweights;  // of each slot, of stat_dtype
};
void add_group_bias_weights(const GroupBiasWeightsArgs& args, StreamView stream);

}  // namespace tessera::kernels
