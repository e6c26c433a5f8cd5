#pragma once
// What a GPU cannot exceed, and the time that a planned step takes at least by it. Published
// figures; the one place that holds them.

#include "runtime/plan/plan.hpp"

namespace tessera::plan {

struct DeviceLimits {
  const char* name = "";
  double half_flops = 0, fp32_flops = 0;  // a second, dense products: bf16 and fp16; fp32 without TF32
  double memory_bytes_s = 0;
  [[nodiscard]] double flops(DType dtype) const { return size_of(dtype) == 2 ? half_flops : fp32_flops; }
};
/// H200 SXM, as NVIDIA's data sheet has it.
inline constexpr DeviceLimits h200{.name = "H200", .half_flops = 989e12, .fp32_flops = 67e12, .memory_bytes_s = 4.8e12};

struct MinimumStepTime {
  double gemm_s = 0;    // model FLOPs of this rank's share of the global batch, and of recomputing
  double states_s = 0;  // masters, moments and gradient of the shard, read and written once by the update
};
/// Neither includes communication, attention's softmax, norms or what is launched in vain.
[[nodiscard]] inline MinimumStepTime minimum_step_time(const RunPlan& plan, const DeviceLimits& limits) {
  std::int64_t numel = 0;
  for (int u = 0; u < plan.layout.num_units(); ++u) numel += plan.layout.shard_numel(u);
  const double flops = plan.costs.flops_per_step + plan.costs.recompute_flops_per_step;
  const DType dtype = plan.spec.strategy.policy.param_dtype;
  const double copies = size_of(dtype) == 2 ? 2 : 0;
  return {flops / plan.spec.strategy.mesh.world() / limits.flops(dtype),
          static_cast<double>(numel) * (7 * 4 + copies) / limits.memory_bytes_s};
}

}  // namespace tessera::plan
