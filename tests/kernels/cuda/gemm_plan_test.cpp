// SPDX-License-Identifier: Apache-2.0
// GEMMs in terms of a column-major library: the mapping, and the library's descriptors if it is installed (no device
// needed).
#include "kernels/cuda/gemm_plan.hpp"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <limits>

#include "../reference.hpp"
#include "kernels/cuda/gemm_candidates.hpp"
#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels::cuda {
namespace {

alignas(256) float memory[4096];

GemmArgs product(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b) {
  return {.a = {memory, trans_a ? Shape{k, m} : Shape{m, k}},
          .b = {memory, trans_b ? Shape{n, k} : Shape{k, n}},
          .c = {memory, Shape{m, n}},
          .trans_a = trans_a,
          .trans_b = trans_b};
}

/// The GEMM as a column-major library computes it from the plan: element (i, j) of an m×n matrix of pitch p is at
/// i + j·p.
std::vector<float> column_major(const GemmPlan& p, const std::vector<float>& first, const std::vector<float>& second) {
  std::vector<float> result(static_cast<std::size_t>(p.result_pitch * p.n));
  const auto at = [](const std::vector<float>& x, bool transposed, std::int64_t pitch, std::int64_t i, std::int64_t j) {
    return x[static_cast<std::size_t>(transposed ? j + i * pitch : i + j * pitch)];
  };
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j)
      for (std::int64_t k = 0; k < p.k; ++k)
        result[static_cast<std::size_t>(i + j * p.result_pitch)] +=
            at(first, p.first_transposed, p.first_pitch, i, k) * at(second, p.second_transposed, p.second_pitch, k, j);
  return result;
}

TEST(GemmPlan, IsTheRowMajorProduct) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      const std::int64_t m = 5, n = 7, k = 3;
      auto a = random_vector<float>(m * k, 1), b = random_vector<float>(n * k, 2);
      std::vector<float> c(static_cast<std::size_t>(m * n));
      GemmArgs args = product(m, n, k, trans_a, trans_b);
      args.a.data = a.data(), args.b.data = b.data(), args.c.data = c.data();
      gemm(args, host_stream);
      EXPECT_LE(relative_error(column_major(plan_gemm(args), b, a), c), 1e-6);
    }
}

TEST(GemmPlan, PitchesAlignmentAndEpilogue) {
  GemmArgs args = product(4, 6, 8, false, true);
  args.stride_a = 24, args.stride_c = 16, args.beta = 1;
  args.bias = {memory, Shape{6}};
  args.c.data = memory + 4;
  const GemmPlan plan = plan_gemm(args);
  EXPECT_EQ(plan.first_pitch, 8);
  EXPECT_EQ(plan.second_pitch, 24);
  EXPECT_EQ(plan.result_pitch, 16);
  EXPECT_TRUE(plan.adds && plan.bias && plan.first_transposed && !plan.second_transposed);
  EXPECT_EQ(plan.first_alignment, 256u);
  EXPECT_EQ(plan.result_alignment, 16u);
  EXPECT_NE(plan, plan_gemm(product(4, 6, 8, false, true)));
}

/// An attribute as the library returns it.
template <class Value, class Get, class Object, class Attribute>
Value read_back(Get get, Object object, Attribute attribute) {
  Value value{};
  std::size_t written = 0;
  EXPECT_EQ(get(object, attribute, &value, sizeof value, &written), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof value);
  return value;
}

TEST(GemmPlan, DescriptorsSayIt) {
  if (!::tessera::cuda::Library::cublaslt().there()) GTEST_SKIP() << ::tessera::cuda::Library::cublaslt().why_not();
  GemmArgs args = product(32, 48, 64, false, true);
  std::vector<bf16> half(4096);
  args.a = {half.data(), Shape{32, 64}}, args.b = {half.data(), Shape{48, 64}}, args.bias = {half.data(), Shape{48}};
  const CublasGemm p(plan_gemm(args));
  const GemmLibrary& lib = gemm_library();
  EXPECT_EQ(read_back<std::int32_t>(lib.desc_get, p.operation, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
  EXPECT_EQ(read_back<std::int32_t>(lib.desc_get, p.operation, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
  EXPECT_EQ(read_back<std::int32_t>(lib.desc_get, p.operation, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(read_back<std::int32_t>(lib.desc_get, p.operation, CUBLASLT_MATMUL_DESC_SCALE_TYPE), CUDA_R_32F);
  EXPECT_EQ(read_back<std::uint32_t>(lib.desc_get, p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE),
            static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(read_back<std::uint32_t>(lib.layout_get, p.first, CUBLASLT_MATRIX_LAYOUT_TYPE),
            static_cast<std::uint32_t>(CUDA_R_16BF));
  EXPECT_EQ(read_back<std::uint32_t>(lib.layout_get, p.result, CUBLASLT_MATRIX_LAYOUT_TYPE),
            static_cast<std::uint32_t>(CUDA_R_32F));
  EXPECT_EQ(read_back<std::uint64_t>(lib.layout_get, p.first, CUBLASLT_MATRIX_LAYOUT_ROWS),
            64u);  // as stored: k×m, to be transposed
  EXPECT_EQ(read_back<std::uint64_t>(lib.layout_get, p.first, CUBLASLT_MATRIX_LAYOUT_COLS), 48u);
  EXPECT_EQ(read_back<std::uint64_t>(lib.layout_get, p.result, CUBLASLT_MATRIX_LAYOUT_ROWS), 48u);
  EXPECT_EQ(read_back<std::int64_t>(lib.layout_get, p.second, CUBLASLT_MATRIX_LAYOUT_LD), 64);
  EXPECT_EQ(read_back<std::uint64_t>(lib.preference_get, p.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES),
            gemm_workspace_bytes);
  EXPECT_EQ(read_back<std::uint32_t>(lib.preference_get, p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
}

TEST(GemmCandidates, ThatTheLibraryRefusesAreSkipped) {
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH})
    EXPECT_TRUE(is_refusal(status)) << status;
  for (const cublasStatus_t status : {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_EXECUTION_FAILED,
                                      CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_ALLOC_FAILED})
    EXPECT_FALSE(is_refusal(status)) << status;
}

TEST(GemmCandidates, ThatFitAreSharedBetweenGemms) {
  if (!::tessera::cuda::Library::cublaslt().there()) GTEST_SKIP() << ::tessera::cuda::Library::cublaslt().why_not();
  const GemmArgs first = product(32, 48, 64, false, true);
  GemmArgs unaligned = first;
  unaligned.c.data = memory + 4;
  const CublasGemm gemms[] = {CublasGemm(plan_gemm(first)), CublasGemm(plan_gemm(product(64, 16, 32, false, true))),
                              CublasGemm(plan_gemm(product(32, 48, 64, false, false))),
                              CublasGemm(plan_gemm(unaligned))};
  const auto numbered = [](std::uint64_t number) {
    cublasLtMatmulAlgo_t algorithm{};
    algorithm.data[0] = number;
    return algorithm;
  };
  const std::vector<std::uint64_t> proposed[] = {{1, 2}, {2, 3, 4}, {5}, {6}};
  std::vector<GemmContest> contests;
  for (std::size_t g = 0; g < std::size(gemms); ++g) {
    contests.push_back({{nullptr, first, nullptr, nullptr}, &gemms[g], {}});
    for (const std::uint64_t number : proposed[g]) contests.back().algorithms.push_back(numbered(number));
  }
  share_algorithms(contests,
                   [](const GemmContest&, const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0] != 4; });
  const auto shared = [&](std::size_t g) {
    std::vector<std::uint64_t> numbers;
    for (const cublasLtMatmulAlgo_t& algorithm : contests[g].algorithms) numbers.push_back(algorithm.data[0]);
    return numbers;
  };
  EXPECT_EQ(shared(0), (std::vector<std::uint64_t>{1, 2, 3, 6}));     // 4 is refused, 5 is for other transpositions
  EXPECT_EQ(shared(1), (std::vector<std::uint64_t>{2, 3, 4, 1, 6}));  // what the library proposes comes first
  EXPECT_EQ(shared(2), (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(shared(3), (std::vector<std::uint64_t>{6}));  // the others need more alignment
}

constexpr float never = std::numeric_limits<float>::infinity();

/// Candidates that take times[gemm][candidate]; the runs are appended to `runs`.
std::vector<Fastest> measured(const std::vector<std::vector<float>>& times,
                              std::vector<std::pair<std::size_t, std::size_t>>& runs) {
  std::vector<std::size_t> counts;
  for (const auto& of : times) counts.push_back(of.size());
  return measure_in_turns(counts, [&](std::size_t g, std::size_t i) {
    runs.emplace_back(g, i);
    return times[g][i];
  });
}

TEST(GemmCandidates, TheFastestOfEachGemmIsFoundInTurns) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  const std::vector<Fastest> best = measured({{never, 3, 2, never, 4}, {5, never, 5}, {never, never}, {}}, runs);
  ASSERT_EQ(best.size(), 4u);
  EXPECT_EQ(best[0].number, 2u);
  EXPECT_EQ(best[0].milliseconds, 2);
  EXPECT_EQ(best[1].number, 0u);  // the library's first of equals
  EXPECT_EQ(best[2].milliseconds, never);
  EXPECT_EQ(best[3].milliseconds, never);
  EXPECT_EQ(std::ranges::count(runs, std::pair<std::size_t, std::size_t>(0, 0)), 1);  // never: not asked again
  EXPECT_EQ(std::ranges::count(runs, std::pair<std::size_t, std::size_t>(1, 2)), 7);
  EXPECT_TRUE(measured({}, runs).empty());

  runs.clear();
  (void)measured({{1, 1, 1}, {1, 1, 1}}, runs);
  for (std::size_t i = 1; i < runs.size(); ++i) EXPECT_NE(runs[i].first, runs[i - 1].first) << "run " << i;

  runs.clear();
  std::vector<float> many(64, 9);
  many[40] = 3;
  EXPECT_EQ(measured({many}, runs)[0].number, 40u);
  EXPECT_EQ(runs.size(), 3u * 64 + 4 * 8);  // the best eight go on
}

TEST(GemmCandidates, TheRunThatLoadsKernelsDoesNotCount) {
  int runs = 0;
  const auto best = measure_in_turns({1}, [&](std::size_t, std::size_t) { return runs++ == 0 ? 1.0F : 4.0F; });
  EXPECT_EQ(best[0].milliseconds, 4);
}

}  // namespace
}  // namespace tessera::kernels::cuda
