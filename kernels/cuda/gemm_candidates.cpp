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

constexpr int most_candidates = 16, timed_runs = 5;

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
  /// Milliseconds of the fastest of several runs.
  float measure(const GemmCall& call, const CublasGemm& product, const cublasLtMatmulAlgo_t& algorithm) {
    float best = std::numeric_limits<float>::infinity();
    for (int i = 0; i <= timed_runs; ++i) {
      TESSERA_CUDA(cudaEventRecord(start_, call.stream));
      run(call, product, algorithm);
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

void set_bias(const GemmCall& call, const CublasGemm& product) {
  if (product.plan.bias)
    check_gemm(gemm_library().desc_set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.args.bias.data,
                                       sizeof(void*)),
               "BIAS_POINTER", product.plan);
}

void run(const GemmCall& call, const CublasGemm& product, const cublasLtMatmulAlgo_t& algorithm) {
  const GemmArgs& args = call.args;
  set_bias(call, product);
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  const void* const old = args.addend ? args.addend.data : args.c.data;
  check_gemm(gemm_library().matmul(call.handle, product.operation, &alpha, args.b.data, product.first, args.a.data,
                                   product.second, &beta, old, product.result, args.c.data, product.result, &algorithm,
                                   call.workspace, gemm_workspace_bytes, call.stream),
             "cublasLtMatmul", product.plan);
}

std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& product, int count) {
  set_bias(call, product);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(count));
  int answered = 0;
  const cublasStatus_t status =
      gemm_library().heuristic(call.handle, product.operation, product.first, product.second, product.result,
                               product.result, product.preference, count, found.data(), &answered);
  found.resize(static_cast<std::size_t>(answered));
  std::vector<cublasLtMatmulAlgo_t> good;
  for (const auto& candidate : found)
    if (candidate.state == CUBLAS_STATUS_SUCCESS && candidate.workspaceSize <= gemm_workspace_bytes)
      good.push_back(candidate.algo);
  if (status != CUBLAS_STATUS_SUCCESS || good.empty())
    throw Error(ExitCode::internal, strfmt("cuBLASLt has no algorithm (%s)", gemm_library().status_string(status)),
                "product " + str(product.plan), "pad the model's odd sizes, or use another library version");
  return good;
}

cublasLtMatmulAlgo_t fastest(const GemmCall& call, const CublasGemm& product) {
  const auto found = candidates(call, product, most_candidates);
  Clock clock;
  std::size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < found.size(); ++i)
    if (const float time = clock.measure(call, product, found[i]); time < least) least = time, best = i;
  return found[best];
}

AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm) { return std::bit_cast<AlgorithmBytes>(algorithm); }

cublasLtMatmulAlgo_t algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle, const CublasGemm& product) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
  cublasLtMatmulHeuristicResult_t said{};
  const cublasStatus_t status = gemm_library().algorithm_check(handle, product.operation, product.first, product.second,
                                                               product.result, product.result, &algorithm, &said);
  if (status != CUBLAS_STATUS_SUCCESS || said.workspaceSize > gemm_workspace_bytes)
    throw Error(ExitCode::data, "cuBLASLt does not run the algorithm that was chosen for a product",
                "product " + str(product.plan), "Delete the file of --gemm_choice_file: products are timed again");
  return algorithm;
}

}  // namespace tessera::kernels::cuda
