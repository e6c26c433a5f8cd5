// SPDX-License-Identifier: Apache-2.0
#pragma once
// C = alpha·op(A)·op(B) + beta·C, row-major. CBLAS (16-bit floats: oneDNN, where the CPU has instructions for them)
// tiled over this rank's threads, or a kernel of our own for a few rows. fp32, fp64, bf16 and fp16; for 16-bit inputs
// products, sums, alpha, beta, bias and the old C are fp32, and every element is rounded once, when it is stored.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// A GEMM that stands for several: m, n or k is the sum of their sizes, since the operands that differ lie side by side
/// in memory. A device computes one GEMM. The host computes one after the other and has the bits of separate calls; for
/// parts of k the second and later ones add to C. Of 16-bit floats, where bits may depend on shapes, parts of n, and
/// parts of a k up to 2,048, are one GEMM on the host too: measured, docs/measurements/kernels.md.
struct GemmParts {
  static constexpr int most = 3;
  enum class Of : unsigned char { m, n, k };
  Of of = Of::n;
  int count = 0;  // 0: a GEMM by itself
  std::int64_t sizes[most] = {};
};

/// Asserts that the sizes add up to the dimension.
void check_parts(const GemmParts& parts, std::int64_t m, std::int64_t n, std::int64_t k);

struct GemmArgs {
  TensorView a;  // (m, k), or (k, m) if trans_a
  TensorView b;  // (k, n), or (n, k) if trans_b
  TensorView c;  // (m, n), of the dtype of a and b; or fp32 if they are 16-bit
  bool trans_a = false, trans_b = false;
  double alpha = 1, beta = 0;  // beta 0 does not read c
  TensorView addend;  // shape, dtype and stride of c; beta multiplies it in place of c, which is not read. Absent: c
  TensorView bias;    // (n) of a's dtype; added to every row, or absent
  // Elements from one row to the next, if a, b, c are columns of a wider matrix; 0: contiguous rows.
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool rows_vary = false;  // m (k if trans_a) differs from call to call: on the host nothing is prepared for one shape
  GemmParts parts = {};
};
/// The split over threads depends on shapes and the number of threads only, so equal calls give equal bits.
void gemm(const GemmArgs& args, StreamView stream);

/// Bytes of cuBLASLt's workspace on a device: one for each stream that runs GEMMs, allocated at the stream's first.
inline constexpr std::size_t gemm_device_workspace = std::size_t{32} << 20;

}  // namespace tessera::kernels
