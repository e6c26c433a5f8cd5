// SPDX-License-Identifier: Apache-2.0
#include "kernels/reward_loss.hpp"

#include "kernels/cuda/reward_loss.hpp"
#include "kernels/host/reward_loss.hpp"
#include "kernels/operations.hpp"

namespace tessera::kernels {
namespace {

void check_score_weight(const TensorView& x, const TensorView& weight) {
  TESSERA_ASSERT(x.shape.rank() == 2 && weight.numel() == x.shape[1] && weight.dtype == x.dtype,
                 "hidden states %s and a score's weight %s", x.shape.str().c_str(), weight.shape.str().c_str());
}

void check_scores(const TensorView& column, std::int64_t rows, DType dtype) {
  TESSERA_ASSERT(!column || (column.numel() == rows && column.dtype == dtype), "%s of %ld rows",
                 column.shape.str().c_str(), rows);
}

}  // namespace

void score_sequences(const ScoreArgs& args, StreamView stream) {
  check_score_weight(args.x, args.weight);
  TESSERA_ASSERT(args.ids.shape.rank() == 2 && args.ids.numel() == args.x.shape[0] && args.positions &&
                     args.positions.numel() == args.ids.numel() && args.last && args.scores,
                 "ids %s of hidden states %s", args.ids.shape.str().c_str(), args.x.shape.str().c_str());
  TESSERA_ASSERT(!args.ends || (args.ids.shape[0] == 1 && args.ends.dtype == DType::i32), "%ld rows end to end",
                 args.ids.shape[0]);
  const std::int64_t sequences = args.ends ? args.ends.numel() : args.ids.shape[0];
  check_scores(args.last, sequences, DType::i32);
  check_scores(args.scores, sequences, DType::f64);
  TESSERA_DISPATCH(args.x, score_sequences, args);
}

void reward_loss(const RewardLossArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.scores.numel() % 2 == 0, "pairs of %ld scores", args.scores.numel());
  check_scores(args.margins, args.scores.numel(), DType::f32);
  check_scores(args.slopes, args.scores.numel(), DType::f64);
  TESSERA_DISPATCH(args.scores, reward_loss, args);
}

void score_backward(const ScoreBackwardArgs& args, StreamView stream) {
  check_score_weight(args.x, args.weight);
  TESSERA_ASSERT(args.last && args.slopes && args.last.numel() > 0 &&
                     (!args.dx || (args.dx.shape == args.x.shape && args.dx.dtype == args.x.dtype)) &&
                     (!args.dweight || args.dweight.numel() == args.weight.numel()),
                 "gradients %s and %s of hidden states %s", args.dx.shape.str().c_str(),
                 args.dweight.shape.str().c_str(), args.x.shape.str().c_str());
  check_scores(args.slopes, args.last.numel(), DType::f64);
  TESSERA_DISPATCH(args.x, score_backward, args);
}

}  // namespace tessera::kernels
