// SPDX-License-Identifier: Apache-2.0
// RMSNorm over this rank's threads.
#include "kernels/rms_norm.hpp"

#include "kernels/host/norm_partials.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/rms_norm.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::host {
namespace {

struct GroupShape {
  std::int64_t rows, groups, channels;
  GroupShape(const TensorView& x, const TensorView& weight)
      : rows(x.shape[0]), groups(x.shape[1] / weight.numel()), channels(weight.numel()) {}
};

/// Calls the forward or apply function of T's table on ranges of rows.
template <class Choose>
void rms_norm_by_ranges(const RmsNormForwardArgs& args, const Choose& function_of) {
  const GroupShape s(args.x, args.weight);
  dispatch_dtype(args.x.dtype, [&]<class T>(T) {
    const RmsNormRows<T> full{args.x.as<T>(),
                              args.weight.as<T>(),
                              args.y.as<T>(),
                              args.rstd ? args.rstd.as<Acc<T>>() : nullptr,
                              s.rows,
                              s.groups,
                              s.channels,
                              row_stride(args.x, args.stride_x),
                              row_stride(args.y, args.stride_y),
                              static_cast<Acc<T>>(args.eps),
                              static_cast<Acc<T>>(args.weight_offset)};
    parallel_ranges(full.rows, norm_grain, [&](std::int64_t begin, std::int64_t end) {
      RmsNormRows<T> part = full;
      part.x += begin * full.stride_x;
      part.y += begin * full.stride_y;
      if (part.rstd) part.rstd += begin * full.groups;
      part.rows = end - begin;
      function_of(rms_norm<T>())(part);
    });
  });
}

template <class T>
void backward(const RmsNormBackwardArgs& args) {
  const GroupShape s(args.x, args.weight);
  const std::int64_t stride_dy = row_stride(args.dy, args.stride_dy), stride_x = row_stride(args.x, args.stride_x),
                     stride_dx = args.dx ? row_stride(args.dx, args.stride_dx) : 0;
  T* const dx = args.dx ? args.dx.as<T>() : nullptr;
  sum_row_blocks<T>(
      s.rows, s.channels, {args.dweight}, args.accumulate, args.workspace,
      [&](std::int64_t row, std::int64_t rows, Acc<T>* dweight) {
        rms_norm<T>().backward({args.dy.as<T>() + row * stride_dy, args.x.as<T>() + row * stride_x, args.weight.as<T>(),
                                args.rstd.as<Acc<T>>() + row * s.groups, dx ? dx + row * stride_dx : nullptr, dweight,
                                rows, s.groups, s.channels, stride_dy, stride_x, stride_dx, args.add_to_dx,
                                static_cast<Acc<T>>(args.weight_offset)});
      });
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args) {
  rms_norm_by_ranges(args, [](const auto& table) { return table.forward; });
}

void rms_norm_apply(const RmsNormApplyArgs& args) {
  rms_norm_by_ranges(
      {.x = args.x, .weight = args.weight, .y = args.y, .rstd = args.rstd, .weight_offset = args.weight_offset},
      [](const auto& table) { return table.apply; });
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  dispatch_dtype(args.x.dtype, [&]<class T>(T) { backward<T>(args); });
}

}  // namespace tessera::kernels::host
