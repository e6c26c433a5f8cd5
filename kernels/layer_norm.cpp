// LayerNorm: shapes, threads, dispatch. The sums over rows are taken in blocks that do not depend on the number of
// threads.
#include "kernels/layer_norm.hpp"

#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/layer_norm.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

namespace {

constexpr std::int64_t grain = 8;         // rows
constexpr std::int64_t most_blocks = 64;  // of rows in backward, each with its partial dweight and dbias
constexpr std::int64_t least_rows = 16;   // in a block

struct Extent {
  std::int64_t rows = 0, channels = 0;
};

Extent extent(const TensorView& x, const TensorView& weight) {
  TESSERA_ASSERT(x.shape.rank() == 2 && x.shape[1] > 0 && weight.numel() == x.shape[1], "x %s, weight %s",
                 x.shape.str().c_str(), weight.shape.str().c_str());
  return {x.shape[0], x.shape[1]};
}

template <class T>
T* optional(const TensorView& view) {
  return view ? view.as<T>() : nullptr;
}

/// The rows [begin, end) of a whole.
template <class T>
host::LayerNormRows<T> rows_of(const host::LayerNormRows<T>& whole, std::int64_t begin, std::int64_t end) {
  host::LayerNormRows<T> part = whole;
  part.x += begin * whole.channels;
  part.y += begin * whole.channels;
  if (part.mean) part.mean += begin;
  if (part.rstd) part.rstd += begin;
  part.rows = end - begin;
  return part;
}

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args, StreamView stream) {
  const auto [rows, channels] = extent(args.x, args.weight);
  TESSERA_ASSERT(args.bias.numel() == channels && args.y.shape == args.x.shape);
  TESSERA_ASSERT((!args.mean || args.mean.numel() == rows) && (!args.rstd || args.rstd.numel() == rows));
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::layer_norm_forward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&, n = rows, c = channels](auto zero) {
    using T = decltype(zero);
    const host::LayerNormRows<T> whole{args.x.as<T>(),
                                       args.weight.as<T>(),
                                       args.bias.as<T>(),
                                       args.y.as<T>(),
                                       optional<Acc<T>>(args.mean),
                                       optional<Acc<T>>(args.rstd),
                                       n,
                                       c,
                                       static_cast<Acc<T>>(args.eps)};
    const auto& table = host::layer_norm<T>();
    host::parallel_ranges(n, grain,
                          [&](std::int64_t begin, std::int64_t end) { table.forward(rows_of(whole, begin, end)); });
  });
}

void layer_norm_apply(const LayerNormApplyArgs& args, StreamView stream) {
  const auto [rows, channels] = extent(args.x, args.weight);
  TESSERA_ASSERT(args.bias.numel() == channels && args.y.shape == args.x.shape && args.mean.numel() == rows &&
                 args.rstd.numel() == rows);
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::layer_norm_apply(args, stream);
  host::dispatch_dtype(args.x.dtype, [&, n = rows, c = channels](auto zero) {
    using T = decltype(zero);
    const host::LayerNormRows<T> whole{args.x.as<T>(),
                                       args.weight.as<T>(),
                                       args.bias.as<T>(),
                                       args.y.as<T>(),
                                       args.mean.as<Acc<T>>(),
                                       args.rstd.as<Acc<T>>(),
                                       n,
                                       c,
                                       Acc<T>(0)};
    const auto& table = host::layer_norm<T>();
    host::parallel_ranges(n, grain,
                          [&](std::int64_t begin, std::int64_t end) { table.apply(rows_of(whole, begin, end)); });
  });
}

std::size_t layer_norm_backward_workspace(std::int64_t channels, DType dtype) {
  return static_cast<std::size_t>(2 * most_blocks * channels) * size_of(stat_dtype(dtype));
}

namespace {

template <class T>
void backward(const LayerNormBackwardArgs& args, std::int64_t rows, std::int64_t channels) {
  const auto& table = host::layer_norm<T>();
  const std::int64_t height = std::max(least_rows, (rows + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (rows + height - 1) / height, stride = 2 * channels;
  auto* const partial = static_cast<Acc<T>*>(args.workspace.data);
  host::parallel_parts(blocks, [&](std::int64_t block) {
    const std::int64_t row = block * height, first = row * channels;
    Acc<T>* const dweight = partial + block * stride;
    std::fill_n(dweight, stride, Acc<T>(0));
    table.backward({args.dy.as<T>() + first, args.x.as<T>() + first, args.weight.as<T>(), args.mean.as<Acc<T>>() + row,
                    args.rstd.as<Acc<T>>() + row, args.dx.as<T>() + first, dweight, dweight + channels,
                    std::min(height, rows - row), channels, args.add_to_dx});
  });
  const auto sum_partials = [&](const TensorView& out, const Acc<T>* parts) {
    host::dispatch_gradient_dtype<T>(out.dtype, [&](auto zero_gradient) {
      using G = decltype(zero_gradient);
      if (blocks == 0 && !args.accumulate) std::fill_n(out.as<G>(), channels, G(0));
      if (blocks == 0) return;
      host::with_fp32_accumulator(
          out.as<G>(), channels, args.accumulate ? host::PreviousValues::keep : host::PreviousValues::ignore,
          [&](std::int64_t begin, std::int64_t end, auto* sums) {
            table.sum_partials(parts + begin, blocks, stride, end - begin, sums, args.accumulate);
          });
    });
  };
  sum_partials(args.dweight, partial);
  sum_partials(args.dbias, partial + channels);
}

}  // namespace

void layer_norm_backward(const LayerNormBackwardArgs& args, StreamView stream) {
  const auto [rows, channels] = extent(args.x, args.weight);
  TESSERA_ASSERT(args.dy.shape == args.x.shape && args.dx.shape == args.x.shape && args.mean.numel() == rows &&
                 args.rstd.numel() == rows);
  TESSERA_ASSERT(args.dweight.numel() == channels && args.dbias.numel() == channels);
  TESSERA_ASSERT(args.workspace.nbytes() >= layer_norm_backward_workspace(channels, args.x.dtype),
                 "workspace of %zu bytes", args.workspace.nbytes());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::layer_norm_backward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&, n = rows, c = channels](auto zero) { backward<decltype(zero)>(args, n, c); });
}

}  // namespace tessera::kernels
