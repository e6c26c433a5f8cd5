#pragma once
// cuBLASLt's functions, and a GEMM described once per plan by the library's opaque objects. The including source
// includes cublasLt.h.

#include <memory>

#include "kernels/cuda/gemm_plan.hpp"
#include "runtime/base/cuda/library.hpp"

namespace tessera::kernels::cuda {

/// The functions, resolved by dlsym. Throws Error (usage) if the library is missing.
struct GemmLibrary {
  GemmLibrary();
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulDescGetAttribute) desc_get;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutGetAttribute) layout_get;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceGetAttribute) preference_get;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
};
/// Loaded at the first call.
[[nodiscard]] const GemmLibrary& gemm_library();
/// Throws Error (internal) with the call and the plan.
void check_gemm(cublasStatus_t status, const char* call, const GemmPlan& plan);

/// A plan as the library's descriptors; needs no device. Split-K sums are reduced in fp32, so that every element is
/// rounded once.
class CublasGemm {
 public:
  explicit CublasGemm(const GemmPlan& plan);
  ~CublasGemm();
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  const GemmPlan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};  // set by the owner of this object
};

}  // namespace tessera::kernels::cuda
