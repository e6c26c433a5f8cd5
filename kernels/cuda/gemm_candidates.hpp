#pragma once
// What the library offers for a product, and how fast each is. cublasLt.h and cuda_runtime.h are in the including
// source file.

#include <vector>

#include "kernels/cuda/gemm_choice.hpp"
#include "kernels/cuda/gemm_library.hpp"

namespace tessera::kernels::cuda {

/// A call with what it works with.
struct GemmCall {
  cublasLtHandle_t handle;
  const GemmArgs& args;
  cudaStream_t stream;
  void* workspace;
};

/// Tells the library where the call's bias lies, if it has one: heuristic and check look at its alignment.
void set_bias(const GemmCall& call, const CublasGemm& product);
/// Issues the call.
void run(const GemmCall& call, const CublasGemm& product, const cublasLtMatmulAlgo_t& algorithm);
/// The library's first `count` candidates, best first as it guesses. Throws Error (internal) if there is none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(const GemmCall& call, const CublasGemm& product, int count);
/// The fastest of 16 candidates, each run six times on the call's memory. Waits.
[[nodiscard]] cublasLtMatmulAlgo_t fastest(const GemmCall& call, const CublasGemm& product);

[[nodiscard]] AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm);
/// Kept bytes as an algorithm. Throws Error (data) if the library would not run it for this product.
[[nodiscard]] cublasLtMatmulAlgo_t algorithm_of(const AlgorithmBytes& bytes, cublasLtHandle_t handle,
                                                const CublasGemm& product);

}  // namespace tessera::kernels::cuda
