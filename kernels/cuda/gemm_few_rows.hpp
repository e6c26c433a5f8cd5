// SPDX-License-Identifier: Apache-2.0
#pragma once
// Y = X·Wᵀ for up to 16 rows of X, at the speed of reading W: the GEMMs of a decode pass. Where it applies is a
// function of shapes, pitches and alignments, so that equal calls have equal bits.

#include "kernels/cuda/gemm_plan.hpp"

namespace tessera::kernels::cuda {

inline constexpr std::int64_t most_few_rows = 16;

/// Both operands are read along K in vectors of 16 bytes.
[[nodiscard]] inline bool is_of_few_rows(const GemmPlan& p) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(p.operands));
  return p.n <= most_few_rows && p.n > 0 && p.m > 0 && p.k > 0 && p.first_transposed && !p.second_transposed &&
         p.operands != DType::f64 && p.k % vector == 0 && p.first_pitch % vector == 0 && p.second_pitch % vector == 0 &&
         p.first_alignment >= 16 && p.second_alignment >= 16;
}

/// gemm() of a plan with is_of_few_rows.
void gemm_few_rows(const GemmArgs& args, StreamView stream);

}  // namespace tessera::kernels::cuda
