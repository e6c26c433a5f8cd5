#pragma once
// Products of groups of rows, each with a matrix of its own: group e has rows [offsets[e], offsets[e+1]) of R. The
// offsets are read where they lie, on a device by the kernel, so that the host never waits for them. Types and rounding
// are those of gemm, which the host calls for each group.
//
// On a device: tiles of 128 x 128 on tensor cores (fp32: 64 x 64, plain), so a group of r rows costs what ceil(r / 128)
// · 128 rows do. One order of sums, which depends on shapes alone: no atomics, no split sums.

#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// A matrix for each group: every step-th of a list of views. On a device they lie equally far apart.
struct GroupMatrices {
  const TensorView* first = nullptr;
  std::int64_t step = 1;
  [[nodiscard]] const TensorView& operator[](std::int64_t group) const { return first[group * step]; }
};
/// Elements from the matrix of a group to the next one's; a bug where they do not lie equally far apart, or differ in
/// shape or type.
[[nodiscard]] std::int64_t group_stride(const GroupMatrices& matrices, std::int64_t groups);

struct GroupedGemmArgs {
  TensorView offsets;  // (E + 1) int32, ascending from 0 to R
  TensorView a;        // (R, k)
  GroupMatrices b;     // E of (k, n), or (n, k) if trans_b; as a
  TensorView c;        // (R, n) as a: the rows of a group times its matrix
  bool trans_b = false;
  bool add = false;  // to c, or over it
};
void grouped_gemm(const GroupedGemmArgs& args, StreamView stream);

struct GroupedGradientArgs {
  TensorView offsets;  // (E + 1) int32, ascending from 0 to R
  TensorView a;        // (R, m)
  TensorView b;        // (R, n) as a
  GroupMatrices c;     // E of (m, n): aᵀ·b over the rows of a group; as a, or fp32 beside halves
  bool add = false;    // to c, or over it: zeros of a group without rows
};
void grouped_gemm_gradient(const GroupedGradientArgs& args, StreamView stream);

}  // namespace tessera::kernels
