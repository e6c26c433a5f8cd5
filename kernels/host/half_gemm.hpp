#pragma once
// GEMM of bf16 or f16 on the calling thread alone: fp32 inside, one rounding at the store. Not a public op (kernels/gemm.hpp).
//
// Two ways. `upcast`: panels of A and B are widened as they are packed, and multiplied in fp32 (half_panels.hpp). `pairs`: panels are packed as pairs of k for
// vdpbf16ps, bf16 only, where the CPU has it. They differ in the last places: vdpbf16ps adds the two products of a pair in one chain of
// its own and flushes subnormal numbers.

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
};
/// Uses some megabytes of scratch, which each thread takes at its first call and keeps.
template <class T, class G>
void half_gemm_serial(const HalfProduct<T, G>& product);

enum class HalfGemm : unsigned char { automatic, upcast, pairs_portable };
/// For tests: which way, until it is set again. pairs_portable: packing and driver of `pairs` with a tile product in plain C++.
void set_half_gemm(HalfGemm way);

}  // namespace tessera::kernels::host
