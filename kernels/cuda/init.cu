// SPDX-License-Identifier: Apache-2.0
// Normal numbers of a new parameter: a thread computes one group of four and writes those in range.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/normals.hpp"
#include "kernels/cuda/ops.hpp"

namespace tessera::kernels::cuda {
namespace {

__global__ void __launch_bounds__(256) normals_kernel(const NormalArgs args) {
  const std::int64_t group = args.first / 4 + static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (4 * group >= args.first + args.count) return;
  float four[4];
  normal_group(args.key, static_cast<std::uint64_t>(group), args.std, four);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t at = 4 * group + i - args.first;
    if (at >= 0 && at < args.count) args.out[at] = four[i];
  }
}

}  // namespace

void normals(const NormalArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.first >= 0 && args.count >= 0);
  if (args.count == 0) return;
  const std::int64_t groups = (args.first + args.count + 3) / 4 - args.first / 4;
  normals_kernel<<<blocks_for(groups, 256), 256, 0, stream_of(stream)>>>(args);
  check_launch("normals");
}

}  // namespace tessera::kernels::cuda
