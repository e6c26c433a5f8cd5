// SPDX-License-Identifier: Apache-2.0
#pragma once
// LossSums in device memory, to which many threads add. Only for .cu files.

#include <cstddef>

#include "kernels/cuda/exact_sum_term.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/linear_cross_entropy.hpp"

namespace tessera::kernels::cuda {

/// Digits of the loss, then the two counts.
struct SumCounters {
  unsigned long long loss[ExactSum::num_counters], tokens, correct;
};
static_assert(sizeof(SumCounters) == sizeof(LossSums) && offsetof(LossSums, tokens) == offsetof(SumCounters, tokens) &&
              offsetof(LossSums, correct) == offsetof(SumCounters, correct));

/// Adds to the loss alone.
__device__ inline void add_term(SumCounters* sums, double loss) {
  const ExactSumTerm term = exact_sum_term(loss);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (term.part[i] != 0) atomicAdd(sums->loss + term.digit + i, static_cast<unsigned long long>(term.part[i]));
}

/// Adds one term of the loss.
__device__ inline void add_loss(SumCounters* sums, double loss, bool correct) {
  add_term(sums, loss);
  atomicAdd(&sums->tokens, 1ull);
  if (correct) atomicAdd(&sums->correct, 1ull);
}

}  // namespace tessera::kernels::cuda
