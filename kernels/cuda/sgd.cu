// SPDX-License-Identifier: Apache-2.0
// SGD over a shard in one pass.
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/sgd_step.hpp"
#include "kernels/cuda/update.cuh"

namespace tessera::kernels::cuda {
namespace {

struct SgdUpdate {
  using Constants = SgdConstants;
  const SgdScalars* scalars;
  const float* grad;
  float *param, *buffer;  // buffer null: without momentum

  [[nodiscard]] bool aligned() const { return aligned16(grad) && aligned16(param) && aligned16(buffer); }
  [[nodiscard]] __device__ Constants constants(double clip, const UpdateTile& tile) const {
    return sgd_constants(*scalars, clip, tile);
  }
  template <int N>
  __device__ __forceinline__ void step(const Constants& s, std::int64_t at, float (&x)[N]) const {
    float g[N], b[N];
    load<N>(grad + at, g);
    load<N>(param + at, x);
    if (buffer != nullptr) {
      load<N>(buffer + at, b);
#pragma unroll
      for (int i = 0; i < N; ++i) sgd_element(s, g[i], x[i], b[i]);
      store<N>(buffer + at, b);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) sgd_element(s, g[i], x[i]);
    }
    store<N>(param + at, x);
  }
};

}  // namespace

void sgd(const SgdArgs& args, StreamView stream) {
  launch_update(args.update,
                SgdUpdate{args.scalars, args.update.grad.as<float>(), args.update.param.as<float>(),
                          args.momentum_buffer ? args.momentum_buffer.as<float>() : nullptr},
                "sgd", stream);
}

}  // namespace tessera::kernels::cuda
