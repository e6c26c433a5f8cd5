// SPDX-License-Identifier: Apache-2.0
#pragma once
// The baseline of the quick start: a bigram model of the training tokens, smoothing tuned on the training tokens.

#include <cstdint>

#include "io/data/dataset.hpp"

namespace tessera::jobs {

/// Interpolated add-k: p(b|a) = λ·(n(a,b) + k)/(n(a) + k·V) + (1-λ)·p(b); (k, λ) chosen on a grid by the loss of a
/// held-out tenth of the training stream, then counts are taken of all of it.
struct BigramResult {
  double loss = 0;  // mean natural-log loss on the validation stream's targets
  double k = 0, lambda = 1;
};
/// vocab at most 4096 (a table of counts): throws Error (usage) beyond; Error (data) with fewer than 20 training or 2
/// validation tokens. Ids of the streams are below vocab: open_dataset checks them.
[[nodiscard]] BigramResult bigram_loss(const io::TokenStream& train, const io::TokenStream& validation,
                                       std::int64_t vocab);

}  // namespace tessera::jobs
