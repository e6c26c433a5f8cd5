// SPDX-License-Identifier: Apache-2.0
// AdamW with 8-bit moments over a shard in one pass: a block of threads takes a block of elements after another, and
// finds the magnitudes of its new moments together.
#include "kernels/adamw_8bit.hpp"
#include "kernels/cuda/adamw_step.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int adamw_8bit_threads = static_cast<int>(quantization_block), adamw_8bit_warps = adamw_8bit_threads / 32;

__device__ const DynamicCode moment_codes[2] = {signed_dynamic_code, unsigned_dynamic_code};

struct Moment {
  std::uint8_t* codes;
  float* absmax;
};

/// The index of the nearest value: how many thresholds are below.
__device__ __forceinline__ int nearest_code(const float* thresholds, float x) {
  int low = 0;
#pragma unroll
  for (int width = 128; width > 0; width /= 2) low += x > thresholds[low + width - 1] ? width : 0;
  return low;
}

/// The largest of the block's values, on every thread. `scratch`: warps elements.
__device__ __forceinline__ float largest_of_block(float x, float* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  __syncthreads();  // the readers of the last call are done
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float largest = scratch[0];
  for (int w = 1; w < adamw_8bit_warps; ++w) largest = fmaxf(largest, scratch[w]);
  return largest;
}

__device__ __forceinline__ void store_moment(const Moment& to, const DynamicCode& code, std::int64_t at, bool inside,
                                             float x, float* scratch) {
  const float largest = largest_of_block(inside ? fabsf(x) : 0.0F, scratch);
  if (threadIdx.x == 0) to.absmax[at / quantization_block] = largest;
  if (inside)
    to.codes[at] = static_cast<std::uint8_t>(nearest_code(code.thresholds, div(x, largest > 0 ? largest : 1.0F)));
}

/// T: the type of the low-precision copy; float: no copy.
template <class T>
__global__ void __launch_bounds__(adamw_8bit_threads)
    adamw_8bit_kernel(const UpdateDecision* decision, const AdamWScalars* scalars,
                      const __grid_constant__ UpdateTable table, const float* grad, float* param, const Moment exp_avg,
                      const Moment exp_avg_sq, T* copy) {
  if (decision->skip != 0) return;
  const UpdateTile tile = update_tile(table, static_cast<int>(blockIdx.x));
  __shared__ AdamWConstants shared;
  __shared__ DynamicCode codes[2];
  __shared__ float scratch[adamw_8bit_warps];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) shared = adamw_constants(*scalars, decision->clip, tile);
  for (int c = 0; c < 2; ++c) {
    codes[c].values[thread] = moment_codes[c].values[thread];
    codes[c].thresholds[thread] = moment_codes[c].thresholds[thread];
  }
  __syncthreads();
  const AdamWConstants s = shared;
  for (std::int64_t first = tile.first; first < tile.last; first += adamw_8bit_threads) {
    const std::int64_t at = first + thread, block = first / quantization_block;
    const bool inside = at < tile.last;
    float m = 0, v = 0;
    if (inside) {
      m = mul(codes[0].values[exp_avg.codes[at]], exp_avg.absmax[block]);
      v = mul(codes[1].values[exp_avg_sq.codes[at]], exp_avg_sq.absmax[block]);
      float x = param[at];
      adamw_element(s, grad[at], x, m, v);
      param[at] = x;
      if constexpr (sizeof(T) == 2) copy[at] = rounded<T>(x);
    }
    store_moment(exp_avg, codes[0], at, inside, m, scratch);  // synchronizes after all have read the magnitudes
    store_moment(exp_avg_sq, codes[1], at, inside, v, scratch);
  }
}

template <class T>
void launch(const AdamW8BitArgs& args, T* copy, StreamView stream) {
  const auto moment = [](const QuantizedMoment& of) {
    return Moment{of.codes.as<std::uint8_t>(), of.absmax.as<float>()};
  };
  for (auto rest = args.update.segments; !rest.empty();) {
    const UpdateTable table = take_update_table(rest);
    if (table.tiles == 0) return;
    adamw_8bit_kernel<T><<<static_cast<unsigned>(table.tiles), adamw_8bit_threads, 0, stream_of(stream)>>>(
        args.update.decision, args.scalars, table, args.update.grad.as<float>(), args.update.param.as<float>(),
        moment(args.exp_avg), moment(args.exp_avg_sq), copy);
    check_launch("adamw_8bit");
  }
}

}  // namespace

void adamw_8bit(const AdamW8BitArgs& args, StreamView stream) {
  const TensorView& copy = args.update.copy;
  if (!copy) return launch<float>(args, nullptr, stream);
  dispatch_dtype(copy.dtype, [&]<class T>(T) {
    TESSERA_ASSERT(sizeof(T) == 2, "a copy in %s", name_of(copy.dtype));
    launch<T>(args, data_of<T>(copy), stream);
  });
}

}  // namespace tessera::kernels::cuda
