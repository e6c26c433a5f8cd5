// SPDX-License-Identifier: Apache-2.0
#pragma once
// One launch and one pass over a shard for an optimizer that works element by element: reads gradient, parameter and
// states, writes parameter, states and the low-precision copy. The table of segments is a kernel argument; a block
// finds its tile in it and computes the constants of the step from the scalars in device memory.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/update_tiles.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {

inline constexpr int update_block = 256;

/// `Update` holds the optimizer's pointers and has
///   Constants                            of a step
///   bool aligned()                       every pointer is aligned to 16 bytes
///   Constants constants(clip, tile)      computed once per block
///   void step<N>(constants, at, x)       updates elements [at, at + N) of the shard; x: the updated parameters
template <class Update, int N, class T>
__global__ void __launch_bounds__(update_block)
    update_kernel(const UpdateDecision* decision, const __grid_constant__ UpdateTable table, const Update update,
                  T* copy) {
  if (decision->skip != 0) return;
  const UpdateTile tile = update_tile(table, static_cast<int>(blockIdx.x));
  __shared__ typename Update::Constants shared;
  if (threadIdx.x == 0) shared = update.constants(decision->clip, tile);
  __syncthreads();
  const typename Update::Constants s = shared;
  const int thread = static_cast<int>(threadIdx.x);
  const UpdateRuns runs = update_runs(tile, N);
  for (std::int64_t i = runs.from + thread * N; i < runs.to; i += update_block * N) {
    float x[N];
    update.template step<N>(s, i, x);
    if constexpr (sizeof(T) == 2) store<N>(copy + i, x);
  }
  const std::int64_t single = runs.single(tile, thread);
  if (N > 1 && single < tile.last) {
    float x[1];
    update.template step<1>(s, single, x);
    if constexpr (sizeof(T) == 2) store<1>(copy + single, x);
  }
}

/// T: the type of the low-precision copy; float: no copy.
template <class T, class Update>
void launch_update(const UpdateArgs& args, const Update& update, T* copy, const char* name, StreamView stream) {
  constexpr int vector = sizeof(T) == 2 ? 8 : 4;
  const bool vectors = update.aligned() && aligned16(copy);
  for (auto rest = args.segments; !rest.empty();) {
    const UpdateTable table = take_update_table(rest);
    if (table.tiles == 0) return;
    const auto blocks = static_cast<unsigned>(table.tiles);
    if (vectors)
      update_kernel<Update, vector, T>
          <<<blocks, update_block, 0, stream_of(stream)>>>(args.decision, table, update, copy);
    else
      update_kernel<Update, 1, T><<<blocks, update_block, 0, stream_of(stream)>>>(args.decision, table, update, copy);
    check_launch(name);
  }
}

template <class Update>
void launch_update(const UpdateArgs& args, const Update& update, const char* name, StreamView stream) {
  if (!args.copy) return launch_update<float>(args, update, nullptr, name, stream);
  dispatch_dtype(args.copy.dtype, [&]<class T>(T) {
    TESSERA_ASSERT(sizeof(T) == 2, "a copy in %s", name_of(args.copy.dtype));
    launch_update<T>(args, update, data_of<T>(args.copy), name, stream);
  });
}

}  // namespace tessera::kernels::cuda
