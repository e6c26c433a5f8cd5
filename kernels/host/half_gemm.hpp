// SPDX-License-Identifier: Apache-2.0
#pragma once
// GEMM of bf16 or f16 on the calling thread alone: fp32 inside, one rounding at the store. Not a public op
// (kernels/gemm.hpp).
//
// oneDNN where the CPU has instructions for the type (onednn.hpp); elsewhere panels of A and B are widened as they are
// packed, and multiplied in fp32 (half_panels.hpp). The two differ in the last places.

#include "kernels/host/blas.hpp"
#include "runtime/base/half.hpp"

namespace tessera::kernels::host {

/// c = alpha·op(a)·op(b) + beta·c + bias; beta 0 does not read c. bias null: none.
template <class T, class G>  // of a, b, bias: bf16 or f16; of c: T or float
struct HalfProduct {
  GemmShape shape;
  const T *a, *b, *bias;
  G* c;
  float alpha, beta;
  bool rows_vary = false;  // of GemmArgs
};
/// Uses some megabytes of scratch, which each thread takes at its first call and keeps.
template <class T, class G>
void half_gemm_serial(const HalfProduct<T, G>& product);

enum class HalfGemm : unsigned char { automatic, upcast };
/// For tests: which way, until it is set again.
void set_half_gemm(HalfGemm way);

}  // namespace tessera::kernels::host
