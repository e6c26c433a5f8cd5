// SPDX-License-Identifier: Apache-2.0
#pragma once
// A row-major GEMM in terms of a column-major library; pure, so that it is tested without library and device.
//
// A row-major (r, c) matrix is a column-major c×r one with the same leading dimension. So C = op(A)·op(B), row-major,
// is computed as Cᵀ = op(B)ᵀ·op(A)ᵀ: the library's first operand is our B, its m our n, and nothing is copied.
//
//   N tokens, W (O, I)   library's ops (m, n, k)   its first, second operand
//   Y = X·Wᵀ             T, N (O, N, I)            W, X
//   dX = dY·W            N, N (I, N, O)            W, dY
//   dW = dYᵀ·X           N, T (I, O, N)            X, dY

#include <algorithm>
#include <compare>
#include <cstdint>

#include "kernels/gemm.hpp"

namespace tessera::kernels::cuda {

/// All that the choice of an algorithm may depend on; key of the cache.
struct GemmPlan {
  bool first_transposed = false, second_transposed = false;  // the library's operands: our B and A
  std::int64_t m = 0, n = 0, k = 0;                          // the library's
  std::int64_t first_pitch = 0, second_pitch = 0, result_pitch = 0;
  DType operands = DType::f32, result = DType::f32;
  bool bias = false, adds = false;                                                // an epilogue; beta is not 0
  std::uint32_t first_alignment = 0, second_alignment = 0, result_alignment = 0;  // bytes, a power of two up to 256

  friend auto operator<=>(const GemmPlan&, const GemmPlan&) = default;
};

/// The largest power of two, up to 256, that divides an address.
[[nodiscard]] inline std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

[[nodiscard]] inline GemmPlan plan_gemm(const GemmArgs& args) {
  const auto pitch = [](const TensorView& matrix, std::int64_t asked) { return asked > 0 ? asked : matrix.shape[1]; };
  GemmPlan plan;
  plan.first_transposed = args.trans_b;
  plan.second_transposed = args.trans_a;
  plan.m = args.c.shape[1];
  plan.n = args.c.shape[0];
  plan.k = args.a.shape[args.trans_a ? 0 : 1];
  plan.first_pitch = pitch(args.b, args.stride_b);
  plan.second_pitch = pitch(args.a, args.stride_a);
  plan.result_pitch = pitch(args.c, args.stride_c);
  plan.operands = args.a.dtype;
  plan.result = args.c.dtype;
  plan.bias = static_cast<bool>(args.bias);
  plan.adds = args.beta != 0;
  plan.first_alignment = alignment_of(args.b.data);
  plan.second_alignment = alignment_of(args.a.data);
  plan.result_alignment = alignment_of(args.c.data);
  if (args.addend) plan.result_alignment = std::min(plan.result_alignment, alignment_of(args.addend.data));
  return plan;
}

[[nodiscard]] inline double flops_of(const GemmPlan& plan) {
  return 2.0 * static_cast<double>(plan.m) * static_cast<double>(plan.n) * static_cast<double>(plan.k);
}
/// "bf16 T,N 4096x32768x1536 -> fp32, pitches 1536 1536 4096, added": for messages and stored choices.
[[nodiscard]] std::string str(const GemmPlan& plan);

}  // namespace tessera::kernels::cuda
