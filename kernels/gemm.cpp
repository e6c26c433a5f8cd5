// GEMM over this rank's threads: one tile of C per thread, each by CBLAS alone (halves: by host/half_gemm). The bias is
// laid down where CBLAS would write its zeros, so that it costs no pass of its own. Products of a few rows with a large
// matrix do without CBLAS, which would copy it.
#include "kernels/gemm.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/blas.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/half_gemm.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/skinny_gemm.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::kernels {

namespace {

/// C as a grid of tiles; a function of the shape and the number of threads alone.
struct Grid {
  std::int64_t rows = 1, columns = 1;  // tiles
  std::int64_t height = 0, width = 0;  // of a tile; the last of each may be smaller
};

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

constexpr double least_flops = 1 << 20;  // of a call that is worth a second thread
constexpr std::int64_t quantum = 32;     // tiles are multiples: a whole number of any BLAS' register blocks

/// Cuts C into threads tiles as square as can be: every tile reads its rows of A and its columns of B.
Grid cut(std::int64_t m, std::int64_t n, std::int64_t k) {
  Grid grid{1, 1, m, n};
  const std::int64_t team = threads();
  if (team == 1 || 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < least_flops)
    return grid;
  double best = -1;
  for (std::int64_t rows = 1; rows <= team; ++rows) {
    if (team % rows != 0) continue;
    const std::int64_t height = round_up((m + rows - 1) / rows, quantum), columns = team / rows;
    const std::int64_t width = round_up((n + columns - 1) / columns, quantum);
    // Work of the largest tile first, then what it reads.
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

/// Lines of C as they are before the product is added: beta·C + bias; beta 0 does not read C.
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
void run_tile(const GemmArgs& args, const host::GemmShape& whole, const Operands<T, G>& of, const Grid& grid,
              std::int64_t tile) {
  const std::int64_t row = tile / grid.columns * grid.height, column = tile % grid.columns * grid.width;
  host::GemmShape shape = whole;
  shape.m = std::min(grid.height, whole.m - row);
  shape.n = std::min(grid.width, whole.n - column);
  const T* a = of.a + (whole.trans_a ? row : row * whole.lda);
  const T* b = of.b + (whole.trans_b ? column * whole.ldb : column);
  G* c = of.c + row * whole.ldc + column;
  if constexpr (is_half<T>) {
    host::half_gemm_serial<T, G>({.shape = shape,
                                  .a = a,
                                  .b = b,
                                  .bias = of.bias ? of.bias + column : nullptr,
                                  .c = c,
                                  .alpha = static_cast<float>(args.alpha),
                                  .beta = static_cast<float>(args.beta)});
  } else {
    T beta = static_cast<T>(args.beta);
    if (of.bias) {
      for (std::int64_t i = 0; i < shape.m; ++i) prefill(beta, of.bias + column, shape.n, c + i * whole.ldc);
      beta = 1;
    }
    host::gemm_serial<T>(shape, static_cast<T>(args.alpha), a, b, beta, c);
  }
}

constexpr std::int64_t least_matrix = 1 << 14;  // elements of B that make the difference

/// Few rows, and a matrix worth reading where it lies.
bool is_skinny(const GemmArgs& args, const host::GemmShape& shape) {
  return shape.m <= host::max_skinny_rows && !shape.trans_a && args.alpha == 1 && shape.n * shape.k >= least_matrix;
}

template <class T>
void run_skinny(const GemmArgs& args, const host::GemmShape& whole, const Operands<T>& of) {
  host::parallel_ranges(whole.n, quantum, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < whole.m; ++i)
      prefill(static_cast<T>(args.beta), of.bias ? of.bias + first : nullptr, last - first,
              of.c + i * whole.ldc + first);
    const host::SkinnyGemmArgs<T> product{of.a,      of.b,      of.c,      whole.m, whole.k,
                                          whole.lda, whole.ldb, whole.ldc, first,   last};
    (whole.trans_b ? host::skinny_gemm<T>().transposed : host::skinny_gemm<T>().plain)(product);
  });
}

/// The same for halves: sums of some columns on the stack, rounded at the end.
template <class T, class G>
void run_skinny_16bit(const GemmArgs& args, const host::GemmShape& whole, const Operands<T, G>& of) {
  constexpr std::int64_t stretch = 512;
  const auto beta = static_cast<float>(args.beta);
  host::parallel_ranges(whole.n, quantum, [&](std::int64_t first, std::int64_t last) {
    alignas(64) float sums[host::max_skinny_rows * stretch];
    for (std::int64_t j = first; j < last; j += stretch) {
      const std::int64_t n = std::min(stretch, last - j);
      for (std::int64_t i = 0; i < whole.m; ++i) {
        const G* const old = of.c + i * whole.ldc + j;
        if (args.beta != 0) std::copy_n(old, n, sums + i * stretch);
        prefill(beta, of.bias ? of.bias + j : nullptr, n, sums + i * stretch);
      }
      const T* const b = of.b + (whole.trans_b ? j * whole.ldb : j);
      const host::SkinnyGemmArgs<T> product{of.a, b, sums, whole.m, whole.k, whole.lda, whole.ldb, stretch, 0, n};
      (whole.trans_b ? host::skinny_gemm<T>().transposed : host::skinny_gemm<T>().plain)(product);
      for (std::int64_t i = 0; i < whole.m; ++i) {
        G* const out = of.c + i * whole.ldc + j;
        if constexpr (is_half<G>) host::convert().narrow(sums + i * stretch, out, n);
        else std::copy_n(sums + i * stretch, n, out);
      }
    }
  });
}

std::int64_t row_stride(const TensorView& matrix, std::int64_t asked) {
  TESSERA_ASSERT(asked == 0 || asked >= matrix.shape[1], "rows of %lld, %lld apart",
                 static_cast<long long>(matrix.shape[1]), static_cast<long long>(asked));
  return asked > 0 ? asked : matrix.shape[1];
}

/// CBLAS adds to C alone.
void copy_addend(const GemmArgs& args, StreamView stream) {
  const std::size_t element = size_of(args.c.dtype);
  const std::size_t pitch = static_cast<std::size_t>(row_stride(args.c, args.stride_c)) * element;
  copy_rows({.to = args.c.data,
             .to_pitch = pitch,
             .from = args.addend.data,
             .from_pitch = pitch,
             .width = static_cast<std::size_t>(args.c.shape[1]) * element,
             .rows = static_cast<std::size_t>(args.c.shape[0])},
            stream);
}

}  // namespace

void gemm(const GemmArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.a.shape.rank() == 2 && args.b.shape.rank() == 2 && args.c.shape.rank() == 2);
  host::GemmShape whole;
  whole.m = args.a.shape[args.trans_a ? 1 : 0];
  whole.k = args.a.shape[args.trans_a ? 0 : 1];
  whole.n = args.b.shape[args.trans_b ? 0 : 1];
  TESSERA_ASSERT(
      args.b.shape[args.trans_b ? 1 : 0] == whole.k && args.c.shape[0] == whole.m && args.c.shape[1] == whole.n,
      "a %s, b %s, c %s", args.a.shape.str().c_str(), args.b.shape.str().c_str(), args.c.shape.str().c_str());
  TESSERA_ASSERT(!args.bias || args.bias.numel() == whole.n, "bias %s, n %lld", args.bias.shape.str().c_str(),
                 static_cast<long long>(whole.n));
  TESSERA_ASSERT(!args.addend || (args.beta != 0 && args.addend.shape == args.c.shape &&
                                  args.addend.dtype == args.c.dtype && args.addend.data != args.c.data),
                 "addend %s, c %s", args.addend.shape.str().c_str(), args.c.shape.str().c_str());
  if constexpr (cuda_built)
    if (is_on_cuda(args.c)) return cuda::gemm(args, stream);
  if (args.addend) copy_addend(args, stream);
  whole.trans_a = args.trans_a;
  whole.trans_b = args.trans_b;
  whole.lda = row_stride(args.a, args.stride_a);
  whole.ldb = row_stride(args.b, args.stride_b);
  whole.ldc = row_stride(args.c, args.stride_c);
  host::dispatch_dtype(args.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    host::dispatch_gradient_dtype<T>(args.c.dtype, [&](auto zero_c) {
      using G = decltype(zero_c);
      const Operands<T, G> of{args.a.as<T>(), args.b.as<T>(), args.bias ? args.bias.as<T>() : nullptr, args.c.as<G>()};
      if (is_skinny(args, whole)) {
        if constexpr (is_half<T>) return run_skinny_16bit<T, G>(args, whole, of);
        else return run_skinny<T>(args, whole, of);
      }
      const Grid grid = cut(whole.m, whole.n, whole.k);
      host::parallel_parts(grid.rows * grid.columns,
                           [&](std::int64_t tile) { run_tile<T, G>(args, whole, of, grid, tile); });
    });
  });
}

namespace {

template <class T>
double measure(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  TESSERA_ASSERT(m > 0 && n > 0 && k > 0 && repeats > 0);
  const auto make = [](std::int64_t count) {
    auto memory = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      memory[static_cast<std::size_t>(i)] = T(static_cast<float>(i % 13 - 6) / 8);
    return memory;
  };
  const auto a = make(m * k), b = make(k * n), c = make(m * n);
  const GemmArgs args{.a = {a.get(), {m, k}}, .b = {b.get(), {k, n}}, .c = {c.get(), {m, n}}};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm(args, host_stream);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best,
                    2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds.count());
  }
  return best;
}

}  // namespace

double measure_sgemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  return measure<float>(m, n, k, repeats);
}
double measure_bf16_gemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats) {
  return measure<bf16>(m, n, k, repeats);
}

}  // namespace tessera::kernels
