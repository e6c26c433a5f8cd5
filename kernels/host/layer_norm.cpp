// LayerNorm over this rank's threads.
#include "kernels/layer_norm.hpp"

#include <algorithm>

#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/layer_norm.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/norm_blocks.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t grain = 8;  // rows

template <class T>
T* optional(const TensorView& view) {
  return view ? view.as<T>() : nullptr;
}

/// Calls the forward or apply function of T's table on ranges of rows.
template <class Choose>
void by_ranges(const LayerNormForwardArgs& args, const Choose& function_of) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const LayerNormRows<T> whole{args.x.as<T>(),
                                 args.weight.as<T>(),
                                 args.bias.as<T>(),
                                 args.y.as<T>(),
                                 optional<Acc<T>>(args.mean),
                                 optional<Acc<T>>(args.rstd),
                                 args.x.shape[0],
                                 args.x.shape[1],
                                 static_cast<Acc<T>>(args.eps)};
    parallel_ranges(whole.rows, grain, [&](std::int64_t begin, std::int64_t end) {
      LayerNormRows<T> part = whole;
      part.x += begin * whole.channels;
      part.y += begin * whole.channels;
      if (part.mean) part.mean += begin;
      if (part.rstd) part.rstd += begin;
      part.rows = end - begin;
      function_of(layer_norm<T>())(part);
    });
  });
}

template <class T>
void backward(const LayerNormBackwardArgs& args) {
  const std::int64_t rows = args.x.shape[0], channels = args.x.shape[1];
  const auto& table = layer_norm<T>();
  const std::int64_t height = norm_block_rows(rows);
  const std::int64_t blocks = (rows + height - 1) / height, stride = 2 * channels;
  const bool sums_wanted = args.dweight || args.dbias;
  auto* const partial = sums_wanted ? static_cast<Acc<T>*>(args.workspace.data) : nullptr;
  T* const dx = args.dx ? args.dx.as<T>() : nullptr;
  parallel_parts(blocks, [&](std::int64_t block) {
    const std::int64_t row = block * height, first = row * channels;
    Acc<T>* const dweight = sums_wanted ? partial + block * stride : nullptr;
    if (sums_wanted) std::fill_n(dweight, stride, Acc<T>(0));
    table.backward({args.dy.as<T>() + first, args.x.as<T>() + first, args.weight.as<T>(), args.mean.as<Acc<T>>() + row,
                    args.rstd.as<Acc<T>>() + row, dx ? dx + first : nullptr, dweight,
                    sums_wanted ? dweight + channels : nullptr, std::min(height, rows - row), channels,
                    args.add_to_dx});
  });
  const auto sum_partials = [&](const TensorView& out, const Acc<T>* parts) {
    if (!out) return;
    dispatch_gradient_dtype<T>(out.dtype, [&]<class G>(G) {
      if (blocks == 0 && !args.accumulate) std::fill_n(out.as<G>(), channels, G(0));
      if (blocks == 0) return;
      with_fp32_accumulator(out.as<G>(), channels, args.accumulate ? PreviousValues::keep : PreviousValues::ignore,
                            [&](std::int64_t begin, std::int64_t end, auto* sums) {
                              table.sum_partials(parts + begin, blocks, stride, end - begin, sums, args.accumulate);
                            });
    });
  };
  sum_partials(args.dweight, partial);
  if (sums_wanted) sum_partials(args.dbias, partial + channels);
}

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args) {
  by_ranges(args, [](const auto& table) { return table.forward; });
}

void layer_norm_apply(const LayerNormApplyArgs& args) {
  by_ranges({.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y, .mean = args.mean, .rstd = args.rstd},
            [](const auto& table) { return table.apply; });
}

void layer_norm_backward(const LayerNormBackwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) { backward<T>(args); });
}

}  // namespace tessera::kernels::host
