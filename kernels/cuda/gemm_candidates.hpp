// SPDX-License-Identifier: Apache-2.0
#pragma once
// The algorithms that cuBLASLt offers for a GEMM, and their speed. The including source includes cublasLt.h and
// cuda_runtime.h.

#include <functional>
#include <optional>
#include <vector>

#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_library.hpp"

namespace tessera::kernels::cuda {

/// A call with its handle, stream and workspace.
struct GemmCall {
  cublasLtHandle_t handle;
  const GemmArgs& args;
  cudaStream_t stream;
  void* workspace;
};

/// Passes the address of the call's bias, if any, to the library: heuristic and check look at its alignment.
void set_bias(const GemmCall& call, const CublasGemm& gemm);
/// Issues the call.
void run(const GemmCall& call, const CublasGemm& gemm, const cublasLtMatmulAlgo_t& algorithm);
/// The library's first `count` candidates, in its order. Throws Error (internal) if there is none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& gemm, int count);
/// The fastest of 16 candidates, each run six times on the call's memory. Synchronizes. Skips candidates that the
/// library refuses to run.
[[nodiscard]] cublasLtMatmulAlgo_t fastest(const GemmCall& call, const CublasGemm& gemm);

/// The status means that the library does not run this candidate here; others may work.
[[nodiscard]] bool is_refusal(cublasStatus_t status);
/// The candidate with the least time. Infinity: refused. Throws Error (internal) with the plan if all are.
using TimeOf = std::function<float(const cublasLtMatmulAlgo_t&)>;
[[nodiscard]] cublasLtMatmulAlgo_t least_time(const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                              const TimeOf& time_of, const GemmPlan& plan);

[[nodiscard]] AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm);
/// Stored bytes as an algorithm; nothing if the library refuses it for this GEMM.
[[nodiscard]] std::optional<cublasLtMatmulAlgo_t> algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle,
                                                               const CublasGemm& gemm);

}  // namespace tessera::kernels::cuda
