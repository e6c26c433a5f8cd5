// SPDX-License-Identifier: Apache-2.0
// GEMM over this rank's threads: one tile of C per thread, each by CBLAS alone (16-bit floats: by host/half_gemm). The
// bias is written to C before the product is added, so that it costs no pass of its own. A few rows times a large
// matrix do without CBLAS, which would copy the matrix.
#include "kernels/gemm.hpp"

#include <algorithm>

#include "kernels/host/blas.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/half_gemm.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/skinny_gemm.hpp"
#include "kernels/row_stride.hpp"
#include "runtime/base/round_up.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::kernels::host {
namespace {

/// C as a grid of tiles; a function of the shape and the number of threads only.
struct Grid {
  std::int64_t rows = 1, columns = 1;  // tiles
  std::int64_t height = 0, width = 0;  // of a tile; the last of each may be smaller
};

constexpr double least_flops = 1 << 20;  // of a call that pays for a second thread
constexpr std::int64_t quantum = 32;     // tile sides are multiples: a whole number of any BLAS' register blocks

/// Cuts C into one tile per thread, as square as possible: every tile reads its rows of A and its columns of B.
Grid cut(std::int64_t m, std::int64_t n, std::int64_t k) {
  Grid grid{1, 1, m, n};
  const std::int64_t num_threads = threads();
  if (num_threads == 1 || 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < least_flops)
    return grid;
  double best = -1;
  for (std::int64_t rows = 1; rows <= num_threads; ++rows) {
    if (num_threads % rows != 0) continue;
    const std::int64_t height = round_up((m + rows - 1) / rows, quantum), columns = num_threads / rows;
    const std::int64_t width = round_up((n + columns - 1) / columns, quantum);
    // Work of the largest tile, then the bytes it reads.
    const double h = static_cast<double>(std::min(height, m)), w = static_cast<double>(std::min(width, n));
    const double cost = h * w + 16 * (h + w);
    if (best >= 0 && cost >= best) continue;
    best = cost;
    grid = {(m + height - 1) / height, (n + width - 1) / width, height, width};
  }
  return grid;
}

template <class T, class G = T>
struct Operands {
  const T *a, *b, *bias;
  G* c;
};

/// Writes beta·C + bias to a row of C before the product is added; beta 0 does not read C.
template <class T, class A>
void prefill(A beta, const T* bias, std::int64_t n, A* line) {
  if (beta == A(0) && bias != nullptr) std::copy_n(bias, n, line);
  else if (beta == A(0)) std::fill_n(line, n, A(0));
  else if (bias != nullptr)
    for (std::int64_t j = 0; j < n; ++j) line[j] = beta * line[j] + static_cast<A>(bias[j]);
  else if (beta != A(1))
    for (std::int64_t j = 0; j < n; ++j) line[j] *= beta;
}

template <class T, class G>
void run_tile(const GemmArgs& args, const GemmShape& full, const Operands<T, G>& of, const Grid& grid,
              std::int64_t tile) {
  const std::int64_t row = tile / grid.columns * grid.height, column = tile % grid.columns * grid.width;
  GemmShape shape = full;
  shape.m = std::min(grid.height, full.m - row);
  shape.n = std::min(grid.width, full.n - column);
  const T* a = of.a + (full.trans_a ? row : row * full.lda);
  const T* b = of.b + (full.trans_b ? column * full.ldb : column);
  G* c = of.c + row * full.ldc + column;
  if constexpr (is_half<T>) {
    half_gemm_serial<T, G>({.shape = shape,
                            .a = a,
                            .b = b,
                            .bias = of.bias ? of.bias + column : nullptr,
                            .c = c,
                            .alpha = static_cast<float>(args.alpha),
                            .beta = static_cast<float>(args.beta),
                            .rows_vary = args.rows_vary});
  } else {
    T beta = static_cast<T>(args.beta);
    if (of.bias) {
      for (std::int64_t i = 0; i < shape.m; ++i) prefill(beta, of.bias + column, shape.n, c + i * full.ldc);
      beta = 1;
    }
    gemm_serial<T>(shape, static_cast<T>(args.alpha), a, b, beta, c);
  }
}

constexpr std::int64_t least_matrix = 1 << 14;  // elements of B from which it is faster

/// Few rows, and a matrix large enough to avoid a copy.
bool is_skinny(const GemmArgs& args, const GemmShape& shape) {
  return shape.m <= max_skinny_rows && !shape.trans_a && args.alpha == 1 && shape.n * shape.k >= least_matrix;
}

template <class T>
void run_skinny(const GemmArgs& args, const GemmShape& full, const Operands<T>& of) {
  parallel_ranges(full.n, quantum, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < full.m; ++i)
      prefill(static_cast<T>(args.beta), of.bias ? of.bias + first : nullptr, last - first,
              of.c + i * full.ldc + first);
    const SkinnyGemmArgs<T> range{of.a, of.b, of.c, full.m, full.k, full.lda, full.ldb, full.ldc, first, last};
    (full.trans_b ? skinny_gemm<T>().transposed : skinny_gemm<T>().plain)(range);
  });
}

/// The same for 16-bit floats: sums of a block of columns on the stack, rounded at the end.
template <class T, class G>
void run_skinny_16bit(const GemmArgs& args, const GemmShape& full, const Operands<T, G>& of) {
  const std::int64_t block = skinny_columns(full.m);
  const auto beta = static_cast<float>(args.beta);
  parallel_ranges(full.n, quantum, [&](std::int64_t first, std::int64_t last) {
    alignas(64) float sums[most_skinny_sums];
    for (std::int64_t j = first; j < last; j += block) {
      const std::int64_t n = std::min(block, last - j);
      for (std::int64_t i = 0; i < full.m; ++i) {
        const G* const old = of.c + i * full.ldc + j;
        if (args.beta != 0) std::copy_n(old, n, sums + i * block);
        prefill(beta, of.bias ? of.bias + j : nullptr, n, sums + i * block);
      }
      const T* const b = of.b + (full.trans_b ? j * full.ldb : j);
      const SkinnyGemmArgs<T> range{of.a, b, sums, full.m, full.k, full.lda, full.ldb, block, 0, n};
      (full.trans_b ? skinny_gemm<T>().transposed : skinny_gemm<T>().plain)(range);
      for (std::int64_t i = 0; i < full.m; ++i) {
        G* const out = of.c + i * full.ldc + j;
        if constexpr (is_half<G>) convert().narrow(sums + i * block, out, n);
        else std::copy_n(sums + i * block, n, out);
      }
    }
  });
}

/// `count` rows or columns of a matrix from `first`, in its memory.
TensorView part_of(const TensorView& matrix, std::int64_t stride, bool rows, std::int64_t first, std::int64_t count) {
  if (!matrix) return {};
  auto* const data = static_cast<std::byte*>(matrix.data) +
                     static_cast<std::size_t>(rows ? first * stride : first) * size_of(matrix.dtype);
  return {data, matrix.dtype, rows ? Shape{count, matrix.shape[1]} : Shape{matrix.shape[0], count}, matrix.device};
}

constexpr std::int64_t joined_depth = 2048;  // the most k for which one GEMM is faster than its parts

/// Whether a GEMM in parts is computed as one.
bool joins_parts(const GemmArgs& args) {
  if (size_of(args.a.dtype) != 2) return false;
  return args.parts.of == GemmParts::Of::n ||
         (args.parts.of == GemmParts::Of::k && args.a.shape[args.trans_a ? 0 : 1] <= joined_depth);
}

/// The part [first, first + count) of a GEMM in parts.
GemmArgs gemm_part(const GemmArgs& args, std::int64_t first, std::int64_t count) {
  GemmArgs part = args;
  part.parts = {};
  part.stride_a = row_stride(args.a, args.stride_a);
  part.stride_b = row_stride(args.b, args.stride_b);
  part.stride_c = row_stride(args.c, args.stride_c);
  const GemmParts::Of of = args.parts.of;
  if (of != GemmParts::Of::n)
    part.a = part_of(args.a, part.stride_a, args.trans_a == (of == GemmParts::Of::k), first, count);
  if (of != GemmParts::Of::m)
    part.b = part_of(args.b, part.stride_b, args.trans_b == (of == GemmParts::Of::n), first, count);
  if (of != GemmParts::Of::k) {
    part.c = part_of(args.c, part.stride_c, of == GemmParts::Of::m, first, count);
    part.addend = part_of(args.addend, part.stride_c, of == GemmParts::Of::m, first, count);
  }
  if (of == GemmParts::Of::n && args.bias)
    part.bias = part_of(args.bias.reshape({1, args.bias.numel()}), 0, /*rows=*/false, first, count).reshape({count});
  if (of == GemmParts::Of::k && first > 0) part.beta = 1, part.addend = {}, part.bias = {};
  return part;
}

/// CBLAS adds to C only: copies the addend to C.
void copy_addend(const GemmArgs& args) {
  const std::size_t element = size_of(args.c.dtype);
  const std::size_t pitch = static_cast<std::size_t>(row_stride(args.c, args.stride_c)) * element;
  copy_rows({.to = args.c.data,
             .to_pitch = pitch,
             .from = args.addend.data,
             .from_pitch = pitch,
             .width = static_cast<std::size_t>(args.c.shape[1]) * element,
             .rows = static_cast<std::size_t>(args.c.shape[0])},
            host_stream);
}

}  // namespace

void gemm(const GemmArgs& args) {
  if (args.parts.count > 0 && !joins_parts(args)) {
    std::int64_t first = 0;
    for (int i = 0; i < args.parts.count; first += args.parts.sizes[i++])
      gemm(gemm_part(args, first, args.parts.sizes[i]));
    return;
  }
  if (args.addend) copy_addend(args);
  const GemmShape full{.m = args.c.shape[0],
                       .n = args.c.shape[1],
                       .k = args.a.shape[args.trans_a ? 0 : 1],
                       .trans_a = args.trans_a,
                       .trans_b = args.trans_b,
                       .lda = row_stride(args.a, args.stride_a),
                       .ldb = row_stride(args.b, args.stride_b),
                       .ldc = row_stride(args.c, args.stride_c)};
  dispatch_dtype(args.a.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.c.dtype, [&]<class G>(G) {
      const Operands<T, G> of{args.a.as<T>(), args.b.as<T>(), args.bias ? args.bias.as<T>() : nullptr, args.c.as<G>()};
      if (is_skinny(args, full)) {
        if constexpr (is_half<T>) return run_skinny_16bit<T, G>(args, full, of);
        else return run_skinny<T>(args, full, of);
      }
      const Grid grid = cut(full.m, full.n, full.k);
      parallel_parts(grid.rows * grid.columns, [&](std::int64_t tile) { run_tile<T, G>(args, full, of, grid, tile); });
    });
  });
}

}  // namespace tessera::kernels::host
