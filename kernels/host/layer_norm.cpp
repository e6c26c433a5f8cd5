// SPDX-License-Identifier: Apache-2.0
// LayerNorm over this rank's threads.
#include "kernels/layer_norm.hpp"

#include "kernels/host/layer_norm.hpp"
#include "kernels/host/norm_partials.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels::host {
namespace {

template <class T>
T* optional(const TensorView& view) {
  return view ? view.as<T>() : nullptr;
}

/// Calls the forward or apply function of T's table on ranges of rows.
template <class Choose>
void layer_norm_by_ranges(const LayerNormForwardArgs& args, const Choose& function_of) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const LayerNormRows<T> full{args.x.as<T>(),
                                args.weight.as<T>(),
                                args.bias.as<T>(),
                                args.y.as<T>(),
                                optional<Acc<T>>(args.mean),
                                optional<Acc<T>>(args.rstd),
                                args.x.shape[0],
                                args.x.shape[1],
                                static_cast<Acc<T>>(args.eps)};
    parallel_ranges(full.rows, norm_grain, [&](std::int64_t begin, std::int64_t end) {
      LayerNormRows<T> part = full;
      part.x += begin * full.channels;
      part.y += begin * full.channels;
      if (part.mean) part.mean += begin;
      if (part.rstd) part.rstd += begin;
      part.rows = end - begin;
      function_of(layer_norm<T>())(part);
    });
  });
}

template <class T>
void backward(const LayerNormBackwardArgs& args) {
  const std::int64_t channels = args.x.shape[1];
  T* const dx = args.dx ? args.dx.as<T>() : nullptr;
  sum_row_blocks<T>(
      args.x.shape[0], channels, {args.dweight, args.dbias}, args.accumulate, args.workspace,
      [&](std::int64_t row, std::int64_t rows, Acc<T>* sums) {
        const std::int64_t first = row * channels;
        layer_norm<T>().backward({args.dy.as<T>() + first, args.x.as<T>() + first, args.weight.as<T>(),
                                  args.mean.as<Acc<T>>() + row, args.rstd.as<Acc<T>>() + row, dx ? dx + first : nullptr,
                                  sums, sums ? sums + channels : nullptr, rows, channels, args.add_to_dx});
      });
}

}  // namespace

void layer_norm_forward(const LayerNormForwardArgs& args) {
  layer_norm_by_ranges(args, [](const auto& table) { return table.forward; });
}

void layer_norm_apply(const LayerNormApplyArgs& args) {
  layer_norm_by_ranges(
      {.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y, .mean = args.mean, .rstd = args.rstd},
      [](const auto& table) { return table.apply; });
}

void layer_norm_backward(const LayerNormBackwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) { backward<T>(args); });
}

}  // namespace tessera::kernels::host
