// SPDX-License-Identifier: Apache-2.0
#pragma once
// Published peak figures of GPUs by name, and the least time that a planned step takes on one.

#include <span>
#include <string_view>

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

struct GpuSpec {
  std::string_view name;                  // as the driver reports it, without "NVIDIA "
  double half_flops = 0, fp32_flops = 0;  // a second: dense bf16/fp16 tensor cores with fp32 sums; fp32 without TF32
  double memory_bytes_s = 0;
  [[nodiscard]] double flops(DType dtype) const { return size_of(dtype) == 2 ? half_flops : fp32_flops; }
};
/// Every GPU whose figures are known; sources are in the .cpp.
[[nodiscard]] std::span<const GpuSpec> gpu_specs();
/// The GPU that the driver calls `name`; null if the table lacks it. Only the whole name matches: an RTX 4090 D, an
/// A10G or a MIG slice of an A100 is another GPU.
[[nodiscard]] const GpuSpec* find_gpu_spec(std::string_view name);

struct MinimumStepTime {
  double gemm_s = 0;    // model FLOPs of this rank's share of the global batch, recomputation included
  double states_s = 0;  // masters, optimizer states and gradient of the shard, each read and written as updates do;
                        // 0 if the host updates them
};
/// Neither counts communication, the softmax of attention, norms or kernel launches.
[[nodiscard]] MinimumStepTime minimum_step_time(const RunPlan& plan, const GpuSpec& gpu);

}  // namespace tessera::plan
