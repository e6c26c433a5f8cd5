// SPDX-License-Identifier: Apache-2.0
// Norm, clip factor and skip flag on the device: a few integers, one block.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/step_formulas.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int num_counters = static_cast<int>(ExactSum::num_counters), step_threads = 128;  // one thread per counter
static_assert(num_counters <= step_threads);

/// The total is that of all streams: kernels of several may add to it at once. Integers, so their order changes
/// nothing.
__global__ void join_kernel(const AccumulateNormArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i == static_cast<int>(ExactSum::num_digits)) *args.flag = args.unit[i] != 0 ? 1 : 0;
  if (i < num_counters)
    atomicAdd(reinterpret_cast<unsigned long long*>(args.all + i),
              static_cast<unsigned long long>(carried_counter(args.unit, i)));
  __syncthreads();  // a counter is read by two threads
  if (i < num_counters) args.unit[i] = 0;
}

/// A block for each sum.
__global__ void carry_kernel(const CarrySumsArgs args) {
  const int i = static_cast<int>(threadIdx.x);
  std::int64_t* const counters = args.counters + static_cast<std::int64_t>(blockIdx.x) * num_counters;
  const std::int64_t carried = i < num_counters ? carried_counter(counters, i) : 0;
  __syncthreads();
  if (i < num_counters) counters[i] = carried;
}

__global__ void clip_and_skip_kernel(const ClipAndSkipArgs args) {
  __shared__ std::int64_t digits[ExactSum::num_digits];
  compute_clip_and_skip(args, digits);
}

}  // namespace

void accumulate_norm(const AccumulateNormArgs& args, StreamView stream) {
  join_kernel<<<1, step_threads, 0, stream_of(stream)>>>(args);
  check_launch("accumulate_norm");
}

void carry_sums(const CarrySumsArgs& args, StreamView stream) {
  if (args.sums == 0) return;
  carry_kernel<<<static_cast<unsigned>(args.sums), step_threads, 0, stream_of(stream)>>>(args);
  check_launch("carry_sums");
}

void clip_and_skip(const ClipAndSkipArgs& args, StreamView stream) {
  clip_and_skip_kernel<<<1, 1, 0, stream_of(stream)>>>(args);
  check_launch("clip_and_skip");
}

}  // namespace tessera::kernels::cuda
