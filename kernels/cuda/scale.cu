// SPDX-License-Identifier: Apache-2.0
// Factors and soft caps on a device: one pass, 16 bytes per thread.
#include "kernels/cuda/activations.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"
#include "kernels/scale.hpp"

namespace tessera::kernels::cuda {
namespace {

/// x = F(x, number) element by element, for for_each.
template <auto F, class T>
struct Change {
  T* x;
  float number;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float v[N];
    load<N>(x + at, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = F(v[i], number);
    store<N>(x + at, v);
  }
};

TESSERA_HD float product(float x, float factor) { return mul(x, factor); }
TESSERA_HD float capped(float x, float cap) { return mul(cap, capped_tangent(x, div(1.0F, cap))); }

template <auto F>
void change_elements(const TensorView& x, double number, StreamView stream, const char* name) {
  dispatch_dtype(x.dtype, [&]<class T>(T) {
    for_each<vector_length<T>>(Change<F, T>{data_of<T>(x), static_cast<float>(number)}, x.numel(), {x.data}, stream,
                               name);
  });
}

}  // namespace

void scale(const ScaleArgs& args, StreamView stream) { change_elements<product>(args.x, args.factor, stream, "scale"); }

void soft_cap(const SoftCapArgs& args, StreamView stream) {
  change_elements<capped>(args.x, args.cap, stream, "soft_cap");
}

}  // namespace tessera::kernels::cuda
