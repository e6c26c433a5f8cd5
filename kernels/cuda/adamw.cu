// AdamW over a shard in one launch and one pass: reads gradient, parameter and moments, writes parameter, moments and
// the low-precision copy. The table of segments is a kernel argument; a block finds its tile in it and computes the
// constants of the step from the scalars in device memory.
#include "kernels/adamw.hpp"

#include "kernels/cuda/adamw_step.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int block = 256;

struct Pointers {
  const float* grad;
  float *param, *exp_avg, *exp_avg_sq;
};

/// T: the type of the low-precision copy; float: no copy.
template <int N, class T>
__device__ __forceinline__ void step(const AdamWConstants& s, const Pointers& p, T* copy, std::int64_t at) {
  float g[N], x[N], m[N], v[N];
  load<N>(p.grad + at, g);
  load<N>(p.param + at, x);
  load<N>(p.exp_avg + at, m);
  load<N>(p.exp_avg_sq + at, v);
#pragma unroll
  for (int i = 0; i < N; ++i) adamw_element(s, g[i], x[i], m[i], v[i]);
  store<N>(p.param + at, x);
  store<N>(p.exp_avg + at, m);
  store<N>(p.exp_avg_sq + at, v);
  if constexpr (sizeof(T) == 2) store<N>(copy + at, x);
}

template <int N, class T>
__global__ void __launch_bounds__(block)
    adamw_kernel(const AdamWScalars* scalars, const __grid_constant__ AdamWTable table, const Pointers p, T* copy) {
  if (scalars->skip != 0) return;
  const AdamWTile tile = adamw_tile(table, static_cast<int>(blockIdx.x));
  __shared__ AdamWConstants shared;
  if (threadIdx.x == 0) shared = adamw_constants(*scalars, tile.decay);
  __syncthreads();
  const AdamWConstants s = shared;
  const int thread = static_cast<int>(threadIdx.x);
  const AdamWRuns runs = adamw_runs(tile, N);
  for (std::int64_t i = runs.from + thread * N; i < runs.to; i += block * N) step<N>(s, p, copy, i);
  const std::int64_t single = runs.single(tile, thread);
  if (N > 1 && single < tile.last) step<1>(s, p, copy, single);
}

template <class T>
void launch(const AdamWArgs& args, T* copy, StreamView stream) {
  const Pointers p{args.grad.as<float>(), args.param.as<float>(), args.exp_avg.as<float>(),
                   args.exp_avg_sq.as<float>()};
  constexpr int vector = sizeof(T) == 2 ? 8 : 4;
  const bool vectors =
      aligned16(p.grad) && aligned16(p.param) && aligned16(p.exp_avg) && aligned16(p.exp_avg_sq) && aligned16(copy);
  for (auto rest = args.segments; !rest.empty();) {
    const AdamWTable table = take_adamw_table(rest);
    if (table.tiles == 0) return;
    const auto blocks = static_cast<unsigned>(table.tiles);
    if (vectors) adamw_kernel<vector, T><<<blocks, block, 0, stream_of(stream)>>>(args.scalars, table, p, copy);
    else adamw_kernel<1, T><<<blocks, block, 0, stream_of(stream)>>>(args.scalars, table, p, copy);
    check_launch("adamw");
  }
}

}  // namespace

void adamw(const AdamWArgs& args, StreamView stream) {
  if (!args.copy) return launch<float>(args, nullptr, stream);
  dispatch_dtype(args.copy.dtype, [&]<class T>(T) {
    TESSERA_ASSERT(sizeof(T) == 2, "a copy in %s", name_of(args.copy.dtype));
    launch<T>(args, data_of<T>(args.copy), stream);
  });
}

}  // namespace tessera::kernels::cuda
