// SPDX-License-Identifier: Apache-2.0
#pragma once
// The language-model head fused with its loss: logits = x·Wᵀ by blocks of rows and chunks of the vocabulary, so that no
// (N, V) buffer exists. The gradient of the loss is computed in the same pass. With bf16 or fp16 inputs the logits of a
// block are fp32 on the host and of the inputs' dtype on a device; statistics are fp32 or wider, the gradient is
// rounded to the input's dtype before the GEMMs, and dx is rounded once (on a device, twice in part: decision 0051).

#include <limits>

#include "runtime/base/exact_sum.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// Sums over tokens that each call adds to; any split of a batch gives the same total.
struct LossSums {
  ExactSum loss;             // Σ weight·(-log p(target)), natural log
  std::int64_t tokens = 0;   // targets that are not ignore_index
  std::int64_t correct = 0;  // argmax (the lowest index among equals) is the target
};

inline constexpr std::int32_t ignore_index = -100;

/// What logits are: z = scale·x·Wᵀ, or, with a soft cap, cap·tanh(z / cap).
struct LogitRules {
  double scale = 1;
  double soft_cap = 0;  // 0: none
};

/// What the loss of a token and its gradient need of its logits.
struct TokenStatistics {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;  // the largest logit, and Σ exp(logit - max)
  double target = -std::numeric_limits<double>::infinity();        // the target's logit; -inf if another part has it
  /// Of a part: 1 if the target is the first of its largest logits, else 0. Of all together: weight·loss_scale, or 0
  /// where the target is ignored.
  double factor = 0;
};

/// Where several ranks have parts of a vocabulary: rows [first, first + V) of a weight of `vocab`. Losses and gradients
/// are of all parts, so that a call gives either `statistics` of its part, or from those of all together the gradients
/// (TokenStatistics each, N of them; merge_token_statistics).
struct VocabularyPart {
  std::int64_t first = 0, vocab = 0;  // vocab 0: the weight is all of it
  TensorView statistics;              // written
  TensorView merged;                  // read
};

struct LinearCrossEntropyArgs {
  TensorView x;        // (N, C)
  TensorView weight;   // (V, C)
  TensorView targets;  // (N) int32 in [0, V) or ignore_index
  TensorView weights;  // (N) fp32: factors of the rows' losses; absent: 1. Where the target is ignored: not read
  LogitRules logits = {};
  LossSums* sums = nullptr;  // null: not wanted
  TensorView log_probs;      // (N) fp32, written: log p(target), 0 where the target is ignored; absent: not wanted
  TensorView workspace;      // linear_cross_entropy_workspace bytes
  // Gradient of loss_scale·Σ weight·loss; without dx and dweight: evaluation only.
  const double* loss_scale = nullptr;  // pointer to 1 / valid tokens of the global batch
  TensorView dx;                       // (N, C), overwritten; may be x; absent: not wanted
  /// (V, C) of weight's dtype, or fp32 if that is 16-bit (a 16-bit one is rounded once per block of some hundred rows);
  /// absent: not wanted.
  TensorView dweight;
  bool accumulate = false;  // add to dweight, or overwrite it
  /// x·Wᵀ becomes x·Wᵀ + alpha·low.x·low.weightᵀ: an adapter of the head.
  struct LowRank {
    TensorView x;            // (N, R); absent: none
    TensorView weight;       // (V, R)
    TensorView dx, dweight;  // as those of the head
    bool accumulate = false;
    double alpha = 1;
  };
  LowRank low = {};
  VocabularyPart part = {};  // with it no sums, log-probabilities, weights and log_sum_squares
  /// (N) fp64, written: log Σ p² of the row's distribution, 0 where the target is ignored; absent: not wanted.
  TensorView log_sum_squares = {};

  /// Calls f(product, whether it is the first) for the head and, if there is one, its adapter.
  template <class F>
  void for_each_product(const F& f) const {
    f(LowRank{x, weight, dx, dweight, accumulate, logits.scale}, true);
    if (low.x) f(LowRank{low.x, low.weight, low.dx, low.dweight, low.accumulate, logits.scale * low.alpha}, false);
  }
  [[nodiscard]] bool trains() const { return dx || dweight || low.dx || low.dweight; }
};
void linear_cross_entropy(const LinearCrossEntropyArgs& args, StreamView stream);
/// Enough for this many rows and for fewer.
[[nodiscard]] std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype,
                                                         Device device = host_device);

/// Losses from what each part of a vocabulary has of its tokens' logits.
struct MergeTokenStatisticsArgs {
  TensorView parts;          // (P, N) TokenStatistics as fp64 (P, N, 4), in the order of the parts
  TensorView targets;        // (N), as in LinearCrossEntropyArgs, as are the next two
  TensorView weights;        // absent: 1
  LossSums* sums = nullptr;  // null: not wanted
  const double* loss_scale = nullptr;
  TensorView merged;  // fp64 (N, 4): the TokenStatistics of all parts, with loss_scale; absent: not wanted
};
void merge_token_statistics(const MergeTokenStatisticsArgs& args, StreamView stream);

}  // namespace tessera::kernels
