// SPDX-License-Identifier: Apache-2.0
// Attention as cuDNN's graphs: the library, if installed, fuses them into one kernel for an H200 that is described to
// it, and needs the scratch that plans assume. Needs no device; the library loads a driver, for which the toolkit's
// stub suffices.
#include <cudnn.h>
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "kernels/cuda/cudnn/attention.hpp"
#include "kernels/cuda/cudnn/attention_graph.hpp"
#include "kernels/cuda/fused_attention_plan.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr const char* h200 =
    R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceVer": 900, "driverVer":
  13000, "cudaDeviceId": 0, "totalGlobalMem": 150000000000, "multiProcessorCount": 132, "regsPerBlock": 65536,
  "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 62914560, "warpSize": 32,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM":
  2048, "isTccDriver": 0, "supportCoopLaunch": 1, "deviceName": "NVIDIA H200"})";

/// Why graphs cannot be tested here; "": they can.
std::string missing() {
  auto& library = ::tessera::cuda::Library::cudnn();
  if (!library.there()) return library.why_not();
  return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr ? "" : ::dlerror();
}

const AttentionShape shapes[] = {{1, 37, 12, 2, 64},   {3, 1000, 28, 4, 128},  {2, 513, 14, 2, 64},
                                 {2, 512, 16, 16, 64}, {4, 1024, 12, 2, 128},  {1, 4096, 12, 12, 128},
                                 {5, 65, 3, 1, 128},   {227, 128, 12, 2, 128}, {1, 8192, 32, 8, 128}};

void expect_one_kernel(const cudnn::Descriptor& device, const cudnn::GraphShape& shape, DType dtype) {
  cudnn::Graph forward = cudnn::forward_graph(shape, dtype), backward = cudnn::backward_graph(shape, dtype);
  const std::int64_t batch = shape.part.batch;
  EXPECT_LE(forward.configure(device, "forward").workspace, fused_extra_bytes(batch) - 256);
  const std::size_t scratch = backward.configure(device, "backward").workspace;
  const std::size_t formula = static_cast<std::size_t>(batch) * fused_sequence_bytes(shape.part, shape.part.kv_heads);
  EXPECT_LE(scratch, formula + fused_extra_bytes(batch) - 256);
  EXPECT_GE(scratch, formula);  // dP is kept: sums have one order
}

TEST(AttentionGraph, IsAKernelOfTheLibrarys) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  const cudnn::Descriptor device = cudnn::describe(std::string(h200));
  for (const AttentionShape& s : shapes)
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(testing::Message() << s.batch << " x " << s.tokens << ", " << s.heads << " on " << s.kv_heads
                                      << " of " << s.head_dim);
      for (const auto sequences : {cudnn::Sequences::rows, cudnn::Sequences::documents}) {
        const cudnn::GraphShape whole(s, sequences);
        for (const std::int64_t kv_heads : {s.kv_heads, std::int64_t{1}})
          expect_one_kernel(device, whole.of_heads(kv_heads), dtype);
      }
    }
}

TEST(AttentionGraph, OfAWindowIsAKernelOfTheLibrarys) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  const cudnn::Descriptor device = cudnn::describe(std::string(h200));
  for (AttentionShape s : {shapes[1], shapes[3], shapes[4]}) {
    s.window = 100;
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.tokens << ", " << s.heads << " on " << s.kv_heads);
    for (const auto sequences : {cudnn::Sequences::rows, cudnn::Sequences::documents})
      expect_one_kernel(device, cudnn::GraphShape(s, sequences), DType::bf16);
  }
}

TEST(AttentionGraph, WhatTheLibraryDoesNotKnowIsRefusedInWords) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  const cudnn::Descriptor device = cudnn::describe(std::string(h200));
  cudnn::Graph odd = cudnn::forward_graph(cudnn::GraphShape({1, 64, 2, 2, 67}), DType::bf16);
  EXPECT_THROW((void)odd.configure(device, "forward"), Error);
  EXPECT_THROW((void)cudnn::describe(std::string("{}")), Error);
}

TEST(AttentionGraph, IsUsedOnSm90AndNewer) {
  const auto refusal = [](int major) {
    return cudnn::attention_refusal({.name = "Card", .bus_id = "", .uuid = "", .major = major});
  };
  for (const int major : {9, 10, 12}) EXPECT_EQ(refusal(major), "") << major;
  EXPECT_EQ(refusal(8), "cuDNN's attention is used on sm_90 and newer, and Card is sm_80");
}

}  // namespace
}  // namespace tessera::kernels::cuda
