// RMSNorm: shapes, threads, dispatch. The sums over rows are taken in blocks that do not depend on the number of
// threads.
#include "kernels/rms_norm.hpp"

#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "kernels/host/bias.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/rms_norm.hpp"

namespace tessera::kernels {

namespace {

constexpr std::int64_t grain = 8;         // rows
constexpr std::int64_t most_blocks = 64;  // of rows in backward, each with its partial dweight
constexpr std::int64_t least_rows = 16;   // in a block

struct Extent {
  std::int64_t rows = 0, groups = 0, channels = 0;
};

Extent extent(const TensorView& x, const TensorView& weight) {
  const std::int64_t channels = weight.numel();
  TESSERA_ASSERT(x.shape.rank() == 2 && channels > 0 && x.shape[1] % channels == 0, "x %s, weight %s",
                 x.shape.str().c_str(), weight.shape.str().c_str());
  return {x.shape[0], x.shape[1] / channels, channels};
}

std::int64_t row_stride(const TensorView& x, std::int64_t asked) {
  TESSERA_ASSERT(asked == 0 || asked >= x.shape[1], "stride %lld", static_cast<long long>(asked));
  return asked > 0 ? asked : x.shape[1];
}

/// Calls f on ranges of rows.
template <class T, class F>
void by_ranges(const host::RmsNormRows<T>& whole, const F& f) {
  host::parallel_ranges(whole.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    host::RmsNormRows<T> part = whole;
    part.x += begin * whole.stride_x;
    part.y += begin * whole.stride_y;
    if (part.rstd) part.rstd += begin * whole.groups;
    part.rows = end - begin;
    f(part);
  });
}

template <class T>
void backward(const RmsNormBackwardArgs& args, const Extent& e) {
  const auto& table = host::rms_norm<T>();
  const std::int64_t height = std::max(least_rows, (e.rows + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (e.rows + height - 1) / height;
  const std::int64_t stride_dy = row_stride(args.dy, args.stride_dy), stride_x = row_stride(args.x, args.stride_x),
                     stride_dx = row_stride(args.dx, args.stride_dx);
  auto* const partial = static_cast<Acc<T>*>(args.workspace.data);
  host::parallel_parts(blocks, [&](std::int64_t block) {
    const std::int64_t row = block * height;
    Acc<T>* const dweight = partial + block * e.channels;
    std::fill_n(dweight, e.channels, Acc<T>(0));
    table.backward({args.dy.as<T>() + row * stride_dy, args.x.as<T>() + row * stride_x, args.weight.as<T>(),
                    args.rstd.as<Acc<T>>() + row * e.groups, args.dx.as<T>() + row * stride_dx, dweight,
                    std::min(height, e.rows - row), e.groups, e.channels, stride_dy, stride_x, stride_dx,
                    args.add_to_dx});
  });
  host::dispatch_gradient_dtype<T>(args.dweight.dtype, [&](auto zero_gradient) {
    host::with_fp32_accumulator(args.dweight.as<decltype(zero_gradient)>(), e.channels,
                                args.accumulate ? host::PreviousValues::keep : host::PreviousValues::ignore,
                                [&](std::int64_t begin, std::int64_t end, auto* sums) {
                                  host::bias<Acc<T>>().column_sums(partial + begin, blocks, e.channels, end - begin,
                                                                   sums, args.accumulate);
                                });
  });
}

}  // namespace

void rms_norm_forward(const RmsNormForwardArgs& args, StreamView stream) {
  const Extent e = extent(args.x, args.weight);
  TESSERA_ASSERT(args.y.shape == args.x.shape && (!args.rstd || args.rstd.numel() == e.rows * e.groups));
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::rms_norm_forward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const host::RmsNormRows<T> whole{args.x.as<T>(),
                                     args.weight.as<T>(),
                                     args.y.as<T>(),
                                     args.rstd ? args.rstd.as<Acc<T>>() : nullptr,
                                     e.rows,
                                     e.groups,
                                     e.channels,
                                     row_stride(args.x, args.stride_x),
                                     row_stride(args.y, args.stride_y),
                                     static_cast<Acc<T>>(args.eps)};
    by_ranges(whole, host::rms_norm<T>().forward);
  });
}

void rms_norm_apply(const RmsNormApplyArgs& args, StreamView stream) {
  const Extent e = extent(args.x, args.weight);
  TESSERA_ASSERT(args.y.shape == args.x.shape && args.rstd.numel() == e.rows * e.groups);
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::rms_norm_apply(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const host::RmsNormRows<T> whole{
        args.x.as<T>(), args.weight.as<T>(), args.y.as<T>(),  args.rstd.as<Acc<T>>(), e.rows,
        e.groups,       e.channels,          args.x.shape[1], args.y.shape[1],        Acc<T>(0)};
    by_ranges(whole, host::rms_norm<T>().apply);
  });
}

std::size_t rms_norm_backward_workspace(std::int64_t channels, DType dtype) {
  return static_cast<std::size_t>(most_blocks * channels) * size_of(stat_dtype(dtype));
}

void rms_norm_backward(const RmsNormBackwardArgs& args, StreamView stream) {
  const Extent e = extent(args.x, args.weight);
  TESSERA_ASSERT(args.dy.shape == args.x.shape && args.dx.shape == args.x.shape &&
                 args.rstd.numel() == e.rows * e.groups && args.dweight.numel() == e.channels);
  TESSERA_ASSERT(args.workspace.nbytes() >= rms_norm_backward_workspace(e.channels, args.x.dtype),
                 "workspace of %zu bytes", args.workspace.nbytes());
  if constexpr (cuda_built)
    if (is_on_cuda(args.x)) return cuda::rms_norm_backward(args, stream);
  host::dispatch_dtype(args.x.dtype, [&](auto zero) { backward<decltype(zero)>(args, e); });
}

}  // namespace tessera::kernels
