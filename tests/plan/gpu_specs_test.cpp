// SPDX-License-Identifier: Apache-2.0
// The table of GPU peaks: every GPU is found by the name that its driver reports, a similar GPU is not.
#include <gtest/gtest.h>

#include <set>

#include "runtime/plan/gpu_specs.hpp"

namespace tessera::test {
namespace {

TEST(GpuSpecs, AreFoundByTheDriversName) {
  const std::pair<const char*, double> cases[] = {{"NVIDIA A100-SXM4-80GB", 312e12},
                                                  {"NVIDIA A100 80GB PCIe", 312e12},
                                                  {"NVIDIA H100 80GB HBM3", 989.5e12},
                                                  {"NVIDIA H100 PCIe", 756.5e12},
                                                  {"NVIDIA H200", 989.5e12},
                                                  {"NVIDIA L40S", 362.05e12},
                                                  {"NVIDIA GeForce RTX 3090", 71e12},
                                                  {"NVIDIA B200", 2250e12},
                                                  {"NVIDIA GeForce RTX 4090", 165.2e12},
                                                  {"NVIDIA RTX A6000", 154.8e12},
                                                  {"NVIDIA A10", 125e12},
                                                  {"NVIDIA L4", 121e12},
                                                  {"NVIDIA A100-PCIE-40GB", 312e12},
                                                  {"A100-SXM4-40GB", 312e12},
                                                  {"NVIDIA H200 NVL", 835.5e12}};
  for (const auto& [name, flops] : cases) {
    const plan::GpuSpec* const gpu = plan::find_gpu_spec(name);
    ASSERT_NE(gpu, nullptr) << name;
    EXPECT_EQ(gpu->flops(DType::bf16), flops) << name;
    EXPECT_EQ(gpu->flops(DType::f16), flops) << name;
    EXPECT_EQ(gpu->flops(DType::f32), gpu->fp32_flops) << name;
  }
}

TEST(GpuSpecs, OtherGpusAreUnknown) {
  for (const char* name :
       {"", "NVIDIA", "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090 D", "NVIDIA A10G", "NVIDIA L40",
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA H100", "Tesla V100"})
    EXPECT_EQ(plan::find_gpu_spec(name), nullptr) << name;
}

TEST(GpuSpecs, EveryRowIsComplete) {
  std::set<std::string_view> names;
  for (const plan::GpuSpec& gpu : plan::gpu_specs()) {
    EXPECT_TRUE(names.insert(gpu.name).second) << gpu.name << " stands twice";
    EXPECT_EQ(plan::find_gpu_spec(gpu.name), &gpu);
    EXPECT_GT(gpu.half_flops, 1.9 * gpu.fp32_flops) << gpu.name;
    EXPECT_LT(gpu.half_flops, 40 * gpu.fp32_flops) << gpu.name;
    // Between 60 and 450 FLOPs of bf16 for each byte of memory: a figure in another unit would not be.
    EXPECT_GT(gpu.half_flops, 60 * gpu.memory_bytes_s) << gpu.name;
    EXPECT_LT(gpu.half_flops, 450 * gpu.memory_bytes_s) << gpu.name;
  }
}

}  // namespace
}  // namespace tessera::test
