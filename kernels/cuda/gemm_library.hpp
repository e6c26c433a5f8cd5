// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuBLASLt's functions, and a GEMM described once per plan by the library's opaque objects. The including source
// includes cublasLt.h.

#include <memory>

#include "kernels/cuda/gemm_plan.hpp"
#include "runtime/base/cuda/library.hpp"

namespace tessera::kernels::cuda {

/// The functions, resolved by dlsym. Throws Error (usage) if the library is missing.
struct GemmLibrary {
  ::tessera::cuda::Library& library = ::tessera::cuda::Library::cublaslt();
  decltype(&cublasLtCreate) create = TESSERA_SYMBOL(library, cublasLtCreate);
  decltype(&cublasLtMatmul) matmul = TESSERA_SYMBOL(library, cublasLtMatmul);
  decltype(&cublasLtMatmulDescCreate) desc_create = TESSERA_SYMBOL(library, cublasLtMatmulDescCreate);
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = TESSERA_SYMBOL(library, cublasLtMatmulDescDestroy);
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = TESSERA_SYMBOL(library, cublasLtMatmulDescSetAttribute);
  decltype(&cublasLtMatmulDescGetAttribute) desc_get = TESSERA_SYMBOL(library, cublasLtMatmulDescGetAttribute);
  decltype(&cublasLtMatrixLayoutCreate) layout_create = TESSERA_SYMBOL(library, cublasLtMatrixLayoutCreate);
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = TESSERA_SYMBOL(library, cublasLtMatrixLayoutDestroy);
  decltype(&cublasLtMatrixLayoutGetAttribute) layout_get = TESSERA_SYMBOL(library, cublasLtMatrixLayoutGetAttribute);
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = TESSERA_SYMBOL(library, cublasLtMatmulPreferenceCreate);
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy =
      TESSERA_SYMBOL(library, cublasLtMatmulPreferenceDestroy);
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set =
      TESSERA_SYMBOL(library, cublasLtMatmulPreferenceSetAttribute);
  decltype(&cublasLtMatmulPreferenceGetAttribute) preference_get =
      TESSERA_SYMBOL(library, cublasLtMatmulPreferenceGetAttribute);
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = TESSERA_SYMBOL(library, cublasLtMatmulAlgoGetHeuristic);
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check = TESSERA_SYMBOL(library, cublasLtMatmulAlgoCheck);
  decltype(&cublasLtGetStatusString) status_string = TESSERA_SYMBOL(library, cublasLtGetStatusString);
  decltype(&cublasLtGetVersion) version = TESSERA_SYMBOL(library, cublasLtGetVersion);
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
