// SPDX-License-Identifier: Apache-2.0
// Casts between fp32, bf16 and fp16, and filling: one rounding per element.
#include "kernels/convert.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

TESSERA_HD float identity(float x) { return x; }

struct Fill {
  float* x;
  float value;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = value;
    store<N>(x + at, v);
  }
};

}  // namespace

void convert(const ConvertArgs& args, StreamView stream) {
  const TensorView &from = args.from, &to = args.to;
  dispatch_dtype(from.dtype, [&]<class From>(From) {
    dispatch_dtype(to.dtype, [&]<class To>(To) {
      for_each<vector_length<From, To>>(Unary<identity, From, To>{data_of<From>(from), data_of<To>(to)}, from.numel(),
                                        {from.data, to.data}, stream, "convert");
    });
  });
}

void fill(float* x, std::size_t count, float value, StreamView stream) {
  for_each<4>(Fill{x, value}, static_cast<std::int64_t>(count), {x}, stream, "fill");
}

}  // namespace tessera::kernels::cuda
