// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM on a device: arguments for the kernels; fp32 without tensor cores, 16-bit floats on them.
#include "kernels/cuda/grouped_gemm_call.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/grouped_gemm.hpp"
#include "kernels/row_stride.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
MatrixOf<T> matrix_of(const TensorView& view, std::int64_t stride, std::int64_t distance = 0) {
  constexpr std::int64_t chunk = 16 / sizeof(T);
  const std::int64_t columns = view.shape[1], pitch = row_stride(view, stride);
  return {data_of<T>(view), pitch, view.shape[0], columns,
          aligned16(view.data) && columns % chunk == 0 && pitch % chunk == 0 && distance % chunk == 0};
}

bool allows_pairs(const TensorView& c, std::int64_t pitch, std::int64_t distance) {
  return reinterpret_cast<std::uintptr_t>(c.data) % (2 * size_of(c.dtype)) == 0 && pitch % 2 == 0 && distance % 2 == 0;
}

}  // namespace

void grouped_gemm(const GroupedGemmArgs& args, StreamView stream) {
  const std::int64_t groups = args.offsets.numel() - 1, distance = group_stride(args.b, groups),
                     pitch = row_stride(args.c, args.stride_c);
  if (args.c.numel() == 0) return;
  dispatch_dtype(args.a.dtype, [&]<class T>(T) {
    const GroupedCall<T> call{data_of<std::int32_t>(args.offsets),
                              groups,
                              matrix_of<T>(args.a, args.stride_a),
                              matrix_of<T>(args.b[0], 0, distance),
                              distance,
                              data_of<T>(args.c),
                              args.c.shape[1],
                              pitch,
                              static_cast<float>(args.alpha),
                              args.add,
                              allows_pairs(args.c, pitch, 0)};
    if constexpr (sizeof(T) == 2) launch_grouped_tensor(call, args.trans_b, stream_of(stream));
    else launch_grouped_plain(call, args.trans_b, stream_of(stream));
  });
}

void grouped_gemm_gradient(const GroupedGradientArgs& args, StreamView stream) {
  const std::int64_t groups = args.offsets.numel() - 1, distance = group_stride(args.c, groups);
  if (args.c[0].numel() == 0) return;
  dispatch_dtype(args.a.dtype, [&]<class T>(T) {
    dispatch_gradient_dtype<T>(args.c[0].dtype, [&]<class C>(C) {
      const GradientCall<T, C> call{data_of<std::int32_t>(args.offsets),
                                    groups,
                                    matrix_of<T>(args.a, args.stride_a),
                                    matrix_of<T>(args.b, args.stride_b),
                                    data_of<C>(args.c[0]),
                                    distance,
                                    static_cast<float>(args.alpha),
                                    args.add,
                                    allows_pairs(args.c[0], args.c[0].shape[1], distance)};
      if constexpr (sizeof(T) == 2) launch_gradient_tensor(call, stream_of(stream));
      else launch_gradient_plain(call, stream_of(stream));
    });
  });
}

}  // namespace tessera::kernels::cuda
