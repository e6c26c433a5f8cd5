#pragma once
// C = alpha·op(A)·op(B) + beta·C, row-major, by CBLAS tiled over this rank's threads, or for a few rows by a kernel of
// our own. fp32, fp64, and bf16 or fp16: then products, sums, alpha, beta, bias and the old C are fp32, and every
// element is rounded once, when it is stored.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

struct GemmArgs {
  TensorView a;  // (m, k), or (k, m) if trans_a
  TensorView b;  // (k, n), or (n, k) if trans_b
  TensorView c;  // (m, n), as a and b; or fp32 beside halves
  bool trans_a = false, trans_b = false;
  double alpha = 1, beta = 0;  // beta 0 does not read c
  TensorView addend;  // as c, rows as far apart: beta multiplies it, and c is not read; never c itself. Absent: c
  TensorView bias;    // (n) as a and b; added to every row, or absent
  // Elements from one row to the next where a, b, c are columns of a wider matrix; 0: rows follow one another.
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};
/// The split over threads depends on shapes and the number of threads alone, so equal calls give equal bits.
void gemm(const GemmArgs& args, StreamView stream);

/// Of products on a device: scratch of its own for each stream that has products, taken at the first of them.
inline constexpr std::size_t gemm_device_workspace = std::size_t{32} << 20;

}  // namespace tessera::kernels
