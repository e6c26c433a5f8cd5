#pragma once
// cuBLASLt as this floor uses it: a product described once for each plan, by the library's opaque objects. cublasLt.h
// is in the including source file.

#include <memory>

#include "kernels/cuda/gemm_plan.hpp"
#include "runtime/base/cuda/library.hpp"

namespace tessera::kernels::cuda {

/// The functions, opened by name. Throws Error (usage) where the library is not there.
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
/// Opened at the first call.
[[nodiscard]] const GemmLibrary& gemm_library();
/// Throws Error (internal) with the call and the plan.
void check_gemm(cublasStatus_t status, const char* call, const GemmPlan& plan);

/// A plan in the library's words; needs no device. Reduction of split sums is asked for in fp32, so
/// that every element is rounded once.
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
  cublasLtMatmulAlgo_t algorithm{};  // chosen by the user of this object
};

}  // namespace tessera::kernels::cuda
