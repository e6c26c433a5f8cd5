// SPDX-License-Identifier: Apache-2.0
#include "kernels/preference_loss.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

void check_rows(const SequenceRows& rows) {
  TESSERA_ASSERT(rows.log_probs.shape.rank() == 2 && rows.log_probs.shape == rows.targets.shape &&
                     rows.log_probs.dtype == DType::f32 && rows.targets.dtype == DType::i32,
                 "log-probabilities %s, targets %s", rows.log_probs.shape.str().c_str(),
                 rows.targets.shape.str().c_str());
  TESSERA_ASSERT(!rows.ends || (rows.targets.shape[0] == 1 && rows.ends.dtype == DType::i32), "%ld rows end to end",
                 rows.targets.shape[0]);
}

void check_column(const TensorView& column, const SequenceRows& rows, DType dtype) {
  TESSERA_ASSERT(!column || (column.numel() == rows.count() && column.dtype == dtype), "%s of %ld sequences",
                 column.shape.str().c_str(), rows.count());
}

void check_pairs(const SequenceRows& rows) {
  TESSERA_ASSERT(rows.count() % 2 == 0, "pairs of %ld sequences", rows.count());
}

}  // namespace

void preference_loss(const PreferenceLossArgs& args, StreamView stream) {
  check_rows(args.rows);
  check_column(args.reference_sums, args.rows, DType::f64);
  check_column(args.nll_weights, args.rows, DType::f32);
  check_column(args.matched, args.rows, DType::f64);
  TESSERA_ASSERT(static_cast<bool>(args.matched) == args.spec.sorted(), "pairs that are not sorted");
  check_pairs(args.rows);
  const TensorView& squares = args.rows.log_sum_squares;
  TESSERA_ASSERT(!args.spec.weighted || (squares.shape == args.rows.targets.shape && squares.dtype == DType::f64),
                 "log Σp² %s", squares.shape.str().c_str());
  TESSERA_ASSERT(!args.weights || (args.weights.shape == args.rows.targets.shape && args.weights.dtype == DType::f32 &&
                                   (args.spec.nll == 0 || args.nll_weights)),
                 "weights %s", args.weights.shape.str().c_str());
  TESSERA_ASSERT(!args.is_further || (args.spec.nll == 0 && args.metrics == nullptr), "a pair that counts twice");
  TESSERA_DISPATCH(args.rows.log_probs, preference_loss, args);
}

void labelled_loss(const LabelledLossArgs& args, StreamView stream) {
  check_rows(args.rows);
  TESSERA_ASSERT(args.labels && args.kl, "labelled sequences without labels");
  check_column(args.reference_sums, args.rows, DType::f64);
  check_column(args.labels, args.rows, DType::f32);
  check_column(args.kl, args.rows, DType::f64);
  TESSERA_ASSERT(!args.weights || (args.weights.shape == args.rows.targets.shape && args.weights.dtype == DType::f32),
                 "weights %s", args.weights.shape.str().c_str());
  TESSERA_DISPATCH(args.rows.log_probs, labelled_loss, args);
}

void sum_sequences(const SumSequencesArgs& args, StreamView stream) {
  check_rows(args.rows);
  TESSERA_ASSERT(args.sums, "sums of sequences without memory");
  check_column(args.sums, args.rows, DType::f64);
  if (args.tail_weight != 1) check_pairs(args.rows);
  TESSERA_DISPATCH(args.rows.log_probs, sum_sequences, args);
}

void match_sorted(const MatchSortedArgs& args, StreamView stream) {
  check_rows(args.rows);
  check_pairs(args.rows);
  TESSERA_ASSERT(args.matched && args.scratch.numel() == 2 * args.rows.count() && args.scratch.dtype == DType::f64,
                 "scratch %s of %ld sequences", args.scratch.shape.str().c_str(), args.rows.count());
  check_column(args.reference_sums, args.rows, DType::f64);
  check_column(args.matched, args.rows, DType::f64);
  TESSERA_DISPATCH(args.rows.log_probs, match_sorted, args);
}

}  // namespace tessera::kernels
