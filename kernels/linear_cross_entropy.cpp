// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_cross_entropy.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

/// Both factors of logits, and their gradients.
void check_product(const LinearCrossEntropyArgs& args, const LinearCrossEntropyArgs::LowRank& p) {
  const TensorView &x = p.x, &w = p.weight;
  TESSERA_ASSERT(x.shape.rank() == 2 && w.shape.rank() == 2 && x.shape[1] == w.shape[1] && x.dtype == w.dtype,
                 "x %s, weight %s", x.shape.str().c_str(), w.shape.str().c_str());
  const bool scaled = args.loss_scale != nullptr || args.part.merged;
  TESSERA_ASSERT(!p.dx || (p.dx.shape == x.shape && p.dx.dtype == x.dtype && scaled), "dx %s",
                 p.dx.shape.str().c_str());
  TESSERA_ASSERT(!p.dweight || (p.dweight.shape == w.shape && (scaled || x.shape[0] == 0)), "dweight %s",
                 p.dweight.shape.str().c_str());
}

void check_statistics(const TensorView& of, std::int64_t count) {
  TESSERA_ASSERT(!of || (of.numel() == 4 * count && of.dtype == DType::f64), "statistics %s", of.shape.str().c_str());
}

void check_part(const LinearCrossEntropyArgs& args) {
  const VocabularyPart& part = args.part;
  TESSERA_ASSERT(part.first >= 0 && part.first + args.weight.shape[0] <= part.vocab, "rows from %ld on of %ld",
                 part.first, part.vocab);
  TESSERA_ASSERT(part.statistics ? !part.merged && !args.trains() : bool(part.merged), "statistics, or gradients");
  TESSERA_ASSERT(args.sums == nullptr && !args.log_probs && !args.weights && !args.log_sum_squares,
                 "losses of a part of a vocabulary");
  check_statistics(part.statistics, args.x.shape[0]);
  check_statistics(part.merged, args.x.shape[0]);
}

void check(const LinearCrossEntropyArgs& args) {
  if (args.part.vocab > 0) check_part(args);
  check_product(args, {args.x, args.weight, args.dx, args.dweight});
  if (args.low.x) {
    check_product(args, args.low);
    TESSERA_ASSERT(args.low.x.shape[0] == args.x.shape[0] && args.low.weight.shape[0] == args.weight.shape[0] &&
                       args.low.x.dtype == args.x.dtype,
                   "x %s, weight %s of low rank", args.low.x.shape.str().c_str(), args.low.weight.shape.str().c_str());
  }
  const TensorView& x = args.x;
  const std::int64_t n = x.shape[0], vocab = args.weight.shape[0];
  TESSERA_ASSERT(args.targets.numel() == n && args.targets.dtype == DType::i32);
  TESSERA_ASSERT(!args.log_probs || (args.log_probs.numel() == n && args.log_probs.dtype == DType::f32),
                 "log-probabilities %s", args.log_probs.shape.str().c_str());
  TESSERA_ASSERT(!args.weights || (args.weights.numel() == n && args.weights.dtype == DType::f32), "weights %s",
                 args.weights.shape.str().c_str());
  TESSERA_ASSERT(
      !args.log_sum_squares || (args.log_sum_squares.numel() == n && args.log_sum_squares.dtype == DType::f64),
      "log Σ p² %s", args.log_sum_squares.shape.str().c_str());
  TESSERA_ASSERT(args.logits.soft_cap >= 0, "a soft cap of %g", args.logits.soft_cap);
  TESSERA_ASSERT(args.workspace.nbytes() >= linear_cross_entropy_workspace(n, vocab, x.dtype, x.device),
                 "workspace of %zu bytes", args.workspace.nbytes());
}

}  // namespace

std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype,
                                           [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::linear_cross_entropy_workspace(rows, vocab, dtype);
  return host::linear_cross_entropy_workspace(rows, vocab, dtype);
}

void linear_cross_entropy(const LinearCrossEntropyArgs& args, StreamView stream) {
  check(args);
  TESSERA_DISPATCH(args.x, linear_cross_entropy, args);
}

void merge_token_statistics(const MergeTokenStatisticsArgs& args, StreamView stream) {
  const std::int64_t n = args.targets.numel();
  TESSERA_ASSERT(args.targets.dtype == DType::i32 && args.parts.shape.rank() > 0 &&
                     (!args.weights || (args.weights.numel() == n && args.weights.dtype == DType::f32)),
                 "weights %s", args.weights.shape.str().c_str());
  check_statistics(args.parts, n * args.parts.shape[0]);
  check_statistics(args.merged, n);
  TESSERA_DISPATCH(args.parts, merge_token_statistics, args);
}

}  // namespace tessera::kernels
