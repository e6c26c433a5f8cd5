// SPDX-License-Identifier: Apache-2.0
// Candidates for a GEMM, and their timing.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gemm_candidates.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/base/cuda/check.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int max_candidates = 16, timed_runs = 5;
constexpr float never = std::numeric_limits<float>::infinity();

cublasStatus_t issue(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
  const GemmArgs& args = call.args;
  set_bias(call, gemm);
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  const void* const old = args.addend ? args.addend.data : args.c.data;
  return gemm_library().matmul(call.handle, gemm.operation, &alpha, args.b.data, gemm.first, args.a.data, gemm.second,
                               &beta, old, gemm.result, args.c.data, gemm.result, &algorithm, call.workspace,
                               gemm_workspace_bytes, call.stream);
}

/// Two CUDA events that time what is issued between them.
class Clock {
 public:
  Clock() {
    TESSERA_CUDA(cudaEventCreate(&start_));
    TESSERA_CUDA(cudaEventCreate(&stop_));
  }
  ~Clock() {
    for (const cudaEvent_t event : {start_, stop_})
      if (event) TESSERA_CUDA_QUIETLY(cudaEventDestroy(event));
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  /// Milliseconds of the fastest of several runs; infinity if the library refuses the algorithm.
  float measure(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
    float best = never;
    for (int i = 0; i <= timed_runs; ++i) {
      TESSERA_CUDA(cudaEventRecord(start_, call.stream));
      const cublasStatus_t status = issue(call, gemm, algorithm);
      if (is_refusal(status)) return never;
      check_gemm(status, "cublasLtMatmul", gemm.plan);
      TESSERA_CUDA(cudaEventRecord(stop_, call.stream));
      TESSERA_CUDA(cudaEventSynchronize(stop_));
      float milliseconds = 0;
      TESSERA_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
      if (i > 0) best = std::min(best, milliseconds);  // the first run loads the kernel
    }
    return best;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace

void set_bias(const GemmCall& call, const CublasGemm& gemm) {
  if (gemm.plan.bias)
    check_gemm(
        gemm_library().desc_set(gemm.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.args.bias.data, sizeof(void*)),
        "BIAS_POINTER", gemm.plan);
}

void run(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm) {
  check_gemm(issue(call, gemm, algorithm), "cublasLtMatmul", gemm.plan);
}

std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& gemm, int count) {
  set_bias(call, gemm);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(count));
  int answered = 0;
  const cublasStatus_t status =
      gemm_library().heuristic(call.handle, gemm.operation, gemm.first, gemm.second, gemm.result, gemm.result,
                               gemm.preference, count, found.data(), &answered);
  found.resize(static_cast<std::size_t>(answered));
  std::vector<cublasLtMatmulAlgo_t> good;
  for (const auto& candidate : found)
    if (candidate.state == CUBLAS_STATUS_SUCCESS && candidate.workspaceSize <= gemm_workspace_bytes)
      good.push_back(candidate.algo);
  if (status != CUBLAS_STATUS_SUCCESS || good.empty())
    throw Error(ExitCode::internal, strfmt("cuBLASLt has no algorithm (%s)", gemm_library().status_string(status)),
                "GEMM " + str(gemm.plan), "Pad the model's odd sizes, or use another library version");
  return good;
}

cublasLtMatmulAlgo_t fastest(const GemmCall& call, const CublasGemm& gemm) {
  Clock clock;
  return least_time(
      candidates(call, gemm, max_candidates),
      [&](const cublasLtMatmulAlgo_t& algorithm) { return clock.measure(call, gemm, algorithm); }, gemm.plan);
}

bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

cublasLtMatmulAlgo_t least_time(const std::vector<cublasLtMatmulAlgo_t>& candidates, const TimeOf& time_of,
                                const GemmPlan& plan) {
  const cublasLtMatmulAlgo_t* best = nullptr;
  float least = never;
  for (const cublasLtMatmulAlgo_t& candidate : candidates)
    if (const float time = time_of(candidate); time < least) least = time, best = &candidate;
  if (best == nullptr)
    throw Error(ExitCode::internal, strfmt("cuBLASLt refuses all %zu of its algorithms", candidates.size()),
                "GEMM " + str(plan), "Use --gemm_choice heuristic, or another library version");
  return *best;
}

AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm) { return std::bit_cast<AlgorithmBytes>(algorithm); }

std::optional<cublasLtMatmulAlgo_t> algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle,
                                                 const CublasGemm& gemm) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
  cublasLtMatmulHeuristicResult_t said{};
  const cublasStatus_t status = gemm_library().algorithm_check(handle, gemm.operation, gemm.first, gemm.second,
                                                               gemm.result, gemm.result, &algorithm, &said);
  const bool is_taken = status == CUBLAS_STATUS_SUCCESS && said.workspaceSize <= gemm_workspace_bytes;
  return is_taken ? std::optional(algorithm) : std::nullopt;
}

}  // namespace tessera::kernels::cuda
