// SPDX-License-Identifier: Apache-2.0
#pragma once
// GEMMs of groups of rows, each with its own matrix: group e has rows [offsets[e], offsets[e+1]) of R. Offsets are read
// on the device, so the host does not wait for them. Dtypes and rounding are those of gemm, which the host calls once
// per group.
//
// On a device: tiles of 128×128 on tensor cores (fp32: 64×64, no tensor cores), so a group of r rows costs as much as
// ceil(r / 128)·128 rows. The order of sums depends on shapes only: no atomics, no split-K.

#include "kernels/gemm.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// A matrix for each group: every step-th of a list of views, or the matrices of one view (E, rows, columns). On a
/// device they are equally far apart in memory.
struct GroupMatrices {
  const TensorView* first = nullptr;
  std::int64_t step = 1;
  std::int64_t rows = 0;  // of each matrix, if it is the view and the views after it in memory; 0: the view alone
  [[nodiscard]] TensorView operator[](std::int64_t group) const {
    if (first->shape.rank() == 3) return first->rows(group, 1).reshape({first->shape[1], first->shape[2]});
    TensorView matrix = first[group * step];
    if (rows > 0) matrix.shape = {rows, matrix.shape[1]};
    return matrix;
  }
};
/// Elements from the matrix of a group to the next. Asserts that matrices have one shape, one dtype and one distance.
[[nodiscard]] std::int64_t group_stride(const GroupMatrices& matrices, std::int64_t groups);

struct GroupedGemmArgs {
  TensorView offsets;  // (E + 1) int32, ascending from 0 to R
  TensorView a;        // (R, k)
  GroupMatrices b;     // E of (k, n), or (n, k) if trans_b; as a
  TensorView c;        // (R, n) of a's dtype: alpha times the rows of a group times its matrix
  bool trans_b = false;
  double alpha = 1;
  bool add = false;  // add to c, or overwrite it
  // Elements from one row to the next, if a or c is columns of a wider matrix; 0: contiguous rows.
  std::int64_t stride_a = 0, stride_c = 0;
  GemmParts parts = {};  // of n or k
};
void grouped_gemm(const GroupedGemmArgs& args, StreamView stream);

struct GroupedGradientArgs {
  TensorView offsets;  // (E + 1) int32, ascending from 0 to R
  TensorView a;        // (R, m)
  TensorView b;        // (R, n) of a's dtype
  /// E of (m, n): alpha·aᵀ·b over the rows of a group; of a's dtype, or fp32 if it is 16-bit. Absent ones are not
  /// wanted; on a device all are wanted.
  GroupMatrices c;
  double alpha = 1;
  bool add = false;                         // add to c, or overwrite it (a group without rows: with zeros)
  std::int64_t stride_a = 0, stride_b = 0;  // as in GroupedGemmArgs
  GemmParts parts = {};                     // of m
};
void grouped_gemm_gradient(const GroupedGradientArgs& args, StreamView stream);

}  // namespace tessera::kernels
