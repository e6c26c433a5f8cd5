// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/gpu_specs.hpp"

namespace tessera::plan {

namespace {

// NVIDIA often prints tensor-core figures with 2:4 sparsity; those are halved here. GeForce cards run fp16 and bf16
// with fp32 sums at half the rate of fp16 sums.
constexpr GpuSpec table[] = {
    // "NVIDIA A100 Tensor Core GPU" data sheet: bf16 312 (624 sparse), fp32 19.5; 1.555 TB/s, 80 GB SXM 2.039,
    // PCIe 1.935.
    {"A100-SXM4-40GB", 312e12, 19.5e12, 1.555e12},
    {"A100-PCIE-40GB", 312e12, 19.5e12, 1.555e12},
    {"A100-SXM4-80GB", 312e12, 19.5e12, 2.039e12},
    {"A100 80GB PCIe", 312e12, 19.5e12, 1.935e12},
    // "NVIDIA H100 Tensor Core GPU" data sheet: SXM bf16 1979 sparse, fp32 67, 3.35 TB/s; PCIe 1513 sparse, 51, 2 TB/s;
    // NVL 1671 sparse, 60, 3.9 TB/s.
    {"H100 80GB HBM3", 989.5e12, 67e12, 3.35e12},
    {"H100 PCIe", 756.5e12, 51e12, 2.0e12},
    {"H100 NVL", 835.5e12, 60e12, 3.9e12},
    // "NVIDIA H200 Tensor Core GPU" data sheet: SXM bf16 1979 sparse, fp32 67; NVL 1671 sparse, 60; both 4.8 TB/s.
    {"H200", 989.5e12, 67e12, 4.8e12},
    {"H200 NVL", 835.5e12, 60e12, 4.8e12},
    // "NVIDIA Blackwell Architecture Technical Brief", HGX B200: bf16 2.25 PFLOP/s dense, fp32 80, 8 TB/s.
    {"B200", 2250e12, 80e12, 8.0e12},
    // "NVIDIA L40S" data sheet: bf16 362.05 (733 sparse), fp32 91.6, 864 GB/s.
    {"L40S", 362.05e12, 91.6e12, 0.864e12},
    // "NVIDIA L4 Tensor Core GPU" data sheet: bf16 242 sparse, fp32 30.3, 300 GB/s.
    {"L4", 121e12, 30.3e12, 0.3e12},
    // "NVIDIA A10 Tensor Core GPU" data sheet: bf16 125 (250 sparse), fp32 31.2, 600 GB/s.
    {"A10", 125e12, 31.2e12, 0.6e12},
    // "NVIDIA Ampere GA102 GPU Architecture" white paper, V2, tables 2 and 3: bf16 with fp32 sums 154.8 (309.6 sparse),
    // fp32 38.7, 768 GB/s; RTX 3090: 71 (142 sparse), 35.6, 936 GB/s.
    {"RTX A6000", 154.8e12, 38.7e12, 0.768e12},
    {"GeForce RTX 3090", 71e12, 35.6e12, 0.936e12},
    // "NVIDIA Ada GPU Architecture" white paper, V2.02, appendix A: bf16 with fp32 sums 165.2 (330.4 sparse),
    // fp32 82.6, 1008 GB/s.
    {"GeForce RTX 4090", 165.2e12, 82.6e12, 1.008e12},
};

}  // namespace

std::span<const GpuSpec> gpu_specs() { return table; }

const GpuSpec* find_gpu_spec(std::string_view name) {
  constexpr std::string_view vendor = "NVIDIA ";
  if (name.starts_with(vendor)) name.remove_prefix(vendor.size());
  for (const GpuSpec& gpu : table)
    if (gpu.name == name) return &gpu;
  return nullptr;
}

MinimumStepTime minimum_step_time(const RunPlan& plan, const GpuSpec& gpu) {
  std::int64_t numel = 0;
  for (int u = 0; u < plan.layout.num_units(); ++u) numel += plan.layout.shard_numel(u);
  const double flops = plan.costs.flops_per_step + plan.costs.recompute_flops_per_step;
  const DType dtype = plan.spec.strategy.policy.param_dtype;
  double bytes = 3 * 4 + (size_of(dtype) == 2 ? 2 : 0);  // of an element: master twice, gradient, low-precision copy
  for (const StateSpec& state : plan.spec.states) bytes += 2 * state.element_bytes();
  if (plan.spec.strategy.policy.placement.optimizer != shard::Tier::device) bytes = 0;  // the host updates
  return {flops / plan.spec.strategy.mesh.world() / gpu.flops(dtype),
          static_cast<double>(numel) * bytes / gpu.memory_bytes_s};
}

}  // namespace tessera::plan
