// SPDX-License-Identifier: Apache-2.0
// Which kernels of OpenBLAS suit a CPU.
#include "jobs/cli/session/blas_kernel.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/jobs/variable.hpp"

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
  const Variable set("OPENBLAS_CORETYPE", "Prescott"), own("OPENBLAS_CORETYPE_WITHOUT_TESSERA", std::nullopt);
  EXPECT_EQ(blas_kernel_finding(), "");
  EXPECT_FALSE(set_better_blas_kernel());
  EXPECT_STREQ(std::getenv("OPENBLAS_CORETYPE"), "Prescott");
}

TEST(BlasKernel, ThatTheProgramSetIsSaid) {
  const Variable set("OPENBLAS_CORETYPE", "SkylakeX"), own("OPENBLAS_CORETYPE_WITHOUT_TESSERA", "Prescott");
  const std::string finding = blas_kernel_finding();
  EXPECT_NE(finding.find("for Prescott"), std::string::npos) << finding;
  EXPECT_NE(finding.find("has set OPENBLAS_CORETYPE=SkylakeX"), std::string::npos) << finding;
  EXPECT_FALSE(set_better_blas_kernel());
  unset_better_blas_kernel();
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
}

TEST(BlasKernel, IsSetWhereItsOwnChoiceIsBelowTheCpu) {
  const Variable set("OPENBLAS_CORETYPE", std::nullopt), own("OPENBLAS_CORETYPE_WITHOUT_TESSERA", std::nullopt);
  const std::string better = better_blas_kernel(kernels::blas_kernel(), kernels::isa(), kernels::cpu_maker());
  EXPECT_EQ(set_better_blas_kernel(), !better.empty());
  const char* now = std::getenv("OPENBLAS_CORETYPE");
  EXPECT_EQ(now == nullptr ? "" : std::string(now), better);
}

}  // namespace
}  // namespace tessera::jobs
