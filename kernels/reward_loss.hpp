// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reward models: a score of each sequence, a linear function of its last token's hidden state, and the loss of pairs of
// scores (Bradley–Terry). Sequences 2k and 2k + 1 are the chosen and the rejected sequence of pair k.

#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels {

/// score = x·weight of the last token of each sequence that is not padding.
struct ScoreArgs {
  TensorView x;          // (N, C)
  TensorView weight;     // (1, C), of x's type
  TensorView ids;        // (R, T) int32, a sequence a row, R·T = N; with `ends`, (1, N)
  TensorView positions;  // the same, which count from 0 in each sequence, and are 0 behind its end
  /// A token with this id is no last one, as in transformers, which finds the end of a sequence by it.
  std::int32_t pad_token = -1;
  TensorView last;       // (R) int32, written: which row of x is the last token; the first one, if all pad
  TensorView scores;     // (R) fp64, written; summed in fp64, in an order that T does not change
  TensorView ends = {};  // (R) int32, as SequenceRows (kernels/preference_loss.hpp)
};
void score_sequences(const ScoreArgs& args, StreamView stream);

/// Sums over pairs of a reward model's loss, in Batch::metrics where kernels::PreferenceSum has those of rewards: the
/// scores of chosen and of rejected sequences.
struct RewardLossArgs {
  TensorView scores;   // (R) fp64, R even
  TensorView margins;  // (R) fp32, of the chosen ones alone: how much more that answer is worth; absent: 0
  /// -log σ(chosen - rejected - margin) + center·(chosen + rejected)².
  double center = 0;
  TensorView slopes;                // (R) fp64, written: ∂loss/∂score; absent: not wanted
  LossSums* sums = nullptr;         // adds each pair: its loss, one token, right if the chosen score is larger
  std::int64_t* metrics = nullptr;  // added to; null: not wanted
};
void reward_loss(const RewardLossArgs& args, StreamView stream);

/// Gradients of *loss_scale · Σ loss.
struct ScoreBackwardArgs {
  TensorView x, weight;  // as in ScoreArgs
  TensorView last;       // (R) int32, of score_sequences
  TensorView slopes;     // (R) fp64, of reward_loss
  const double* loss_scale = nullptr;
  TensorView dx;            // (N, C), overwritten: 0 but for the last tokens; may be x; absent: not wanted
  TensorView dweight;       // (1, C) of weight's type, or fp32 if that has 16 bits; absent: not wanted
  bool accumulate = false;  // add to dweight, or overwrite it
};
void score_backward(const ScoreBackwardArgs& args, StreamView stream);

}  // namespace tessera::kernels
