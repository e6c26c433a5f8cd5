// SPDX-License-Identifier: Apache-2.0
#pragma once
// A token of each row of logits, drawn where the logits are.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// Of softmax(logits / temperature): among the top_k largest logits, ties with the last included (0: all), then among
/// the fewest of the largest with the share top_p of the probability.
struct SampleRule {
  double temperature = 1;  // above 0
  std::int64_t top_k = 0;
  double top_p = 1;
  friend bool operator==(const SampleRule&, const SampleRule&) = default;
};

inline constexpr std::int32_t undecided_token = -2;
inline constexpr std::int64_t max_sampled_vocab = std::int64_t{1} << 19;

struct SampleArgs {
  TensorView x;      // (R, V) fp32, V up to max_sampled_vocab
  TensorView draws;  // (R) fp64: a number in [0, 1) of each row
  SampleRule rule;
  /// (R) int32: the token that train::TokenPicker takes of the row with this number; -1 if a logit is not finite;
  /// undecided_token if the number, or top_p, is so near the end of a token's share that the order of sums decides.
  TensorView out;
};
/// On a device. The host writes undecided_token: there the picker has the logits.
void sample(const SampleArgs& args, StreamView stream);

}  // namespace tessera::kernels
