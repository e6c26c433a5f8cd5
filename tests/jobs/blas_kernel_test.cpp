// SPDX-License-Identifier: Apache-2.0
// Which kernels of OpenBLAS suit a CPU.
#include "jobs/cli/session/blas_kernel.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::jobs {
namespace {

using kernels::Isa;

TEST(BlasKernel, BelowTheCpuNamesABetterOne) {
  EXPECT_EQ(better_blas_kernel("Prescott", Isa::avx512_bf16, "Intel"), "SkylakeX");
  EXPECT_EQ(better_blas_kernel("Haswell", Isa::avx512, "Intel"), "SkylakeX");
  EXPECT_EQ(better_blas_kernel("Prescott", Isa::avx512, "AMD"), "Haswell");
  EXPECT_EQ(better_blas_kernel("Sandybridge", Isa::avx2, "Intel"), "Haswell");
}

TEST(BlasKernel, ThatSuitsTheCpuIsLeftAlone) {
  EXPECT_EQ(better_blas_kernel("SkylakeX", Isa::avx512, "Intel"), "");
  EXPECT_EQ(better_blas_kernel("Cooperlake", Isa::avx512_bf16, "Intel"), "");
  EXPECT_EQ(better_blas_kernel("Zen", Isa::avx512_bf16, "AMD"), "");
  EXPECT_EQ(better_blas_kernel("Haswell", Isa::avx2, "Intel"), "");
  EXPECT_EQ(better_blas_kernel("Prescott", Isa::portable, "Intel"), "");
  EXPECT_EQ(better_blas_kernel("SomethingNew", Isa::avx512, "Intel"), "");
  EXPECT_EQ(better_blas_kernel("", Isa::avx512, "Intel"), "");
}

TEST(BlasKernel, ThatSomebodyChoseIsLeftAlone) {
  const char* set = std::getenv("OPENBLAS_CORETYPE");
  const std::string before = set == nullptr ? "" : set;
  setenv("OPENBLAS_CORETYPE", "Prescott", 1);
  EXPECT_EQ(blas_kernel_finding(), "");
  if (before.empty()) unsetenv("OPENBLAS_CORETYPE");
  else setenv("OPENBLAS_CORETYPE", before.c_str(), 1);
}

}  // namespace
}  // namespace tessera::jobs
