// SPDX-License-Identifier: Apache-2.0
// AdamW over a shard in one pass.
#include "kernels/cuda/adamw_step.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/update.cuh"

namespace tessera::kernels::cuda {
namespace {

struct AdamWUpdate {
  using Constants = AdamWConstants;
  const AdamWScalars* scalars;
  const float* grad;
  float *param, *exp_avg, *exp_avg_sq;

  [[nodiscard]] bool aligned() const {
    return aligned16(grad) && aligned16(param) && aligned16(exp_avg) && aligned16(exp_avg_sq);
  }
  [[nodiscard]] __device__ Constants constants(double clip, const UpdateTile& tile) const {
    return adamw_constants(*scalars, clip, tile);
  }
  template <int N>
  __device__ __forceinline__ void step(const Constants& s, std::int64_t at, float (&x)[N]) const {
    float g[N], m[N], v[N];
    load<N>(grad + at, g);
    load<N>(param + at, x);
    load<N>(exp_avg + at, m);
    load<N>(exp_avg_sq + at, v);
#pragma unroll
    for (int i = 0; i < N; ++i) adamw_element(s, g[i], x[i], m[i], v[i]);
    store<N>(param + at, x);
    store<N>(exp_avg + at, m);
    store<N>(exp_avg_sq + at, v);
  }
};

}  // namespace

void adamw(const AdamWArgs& args, StreamView stream) {
  launch_update(args.update,
                AdamWUpdate{args.scalars, args.update.grad.as<float>(), args.update.param.as<float>(),
                            args.exp_avg.as<float>(), args.exp_avg_sq.as<float>()},
                "adamw", stream);
}

}  // namespace tessera::kernels::cuda
