// SPDX-License-Identifier: Apache-2.0
// cuBLASLt resolved by dlsym, and GEMMs as its descriptors.
#include <cublasLt.h>

#include "kernels/cuda/gemm_library.hpp"

#include "kernels/cuda/gemm_choice.hpp"

namespace tessera::kernels::cuda {
namespace {

cudaDataType_t library_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: TESSERA_ASSERT(false, "no GEMM of %s on a device", name_of(dtype)); return CUDA_R_32F;
  }
}

template <class Set, class Object, class Attribute, class Value>
void set(Set function, Object object, Attribute attribute, const Value& value, const char* what, const GemmPlan& plan) {
  check_gemm(function(object, attribute, &value, sizeof value), what, plan);
}

}  // namespace

const GemmLibrary& gemm_library() {
  static const GemmLibrary library;
  return library;
}

void check_gemm(cublasStatus_t status, const char* call, const GemmPlan& plan) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::internal, strfmt("%s: %s", call, gemm_library().status_string(status)), "GEMM " + str(plan),
              "A bug, or a library of another major version");
}

CublasGemm::CublasGemm(const GemmPlan& p) : plan(p) {
  const GemmLibrary& lib = gemm_library();
  const cudaDataType_t operands = library_type(p.operands), to = library_type(p.result);
  check_gemm(lib.desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate", p);
  const cublasOperation_t first_op = p.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second_op = p.second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(lib.desc_set, operation, CUBLASLT_MATMUL_DESC_TRANSA, first_op, "TRANSA", p);
  set(lib.desc_set, operation, CUBLASLT_MATMUL_DESC_TRANSB, second_op, "TRANSB", p);
  if (p.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(lib.desc_set, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "EPILOGUE", p);
    const auto type = static_cast<std::int32_t>(operands);
    set(lib.desc_set, operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type, "BIAS_DATA_TYPE", p);
  }
  const auto matrix = [&](cublasLtMatrixLayout_t& layout, cudaDataType_t type, bool transposed, std::int64_t rows,
                          std::int64_t columns, std::int64_t pitch) {
    if (transposed) std::swap(rows, columns);
    check_gemm(
        lib.layout_create(&layout, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), pitch),
        "cublasLtMatrixLayoutCreate", p);
  };
  matrix(first, operands, p.first_transposed, p.m, p.k, p.first_pitch);
  matrix(second, operands, p.second_transposed, p.k, p.n, p.second_pitch);
  matrix(result, to, false, p.m, p.n, p.result_pitch);
  check_gemm(lib.preference_create(&preference), "cublasLtMatmulPreferenceCreate", p);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, gemm_workspace_bytes,
      "MAX_WORKSPACE_BYTES", p);
  const auto reduction = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction, "REDUCTION_SCHEME_MASK",
      p);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.first_alignment,
      "MIN_ALIGNMENT_A_BYTES", p);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.second_alignment,
      "MIN_ALIGNMENT_B_BYTES", p);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.result_alignment,
      "MIN_ALIGNMENT_C_BYTES", p);
  set(lib.preference_set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.result_alignment,
      "MIN_ALIGNMENT_D_BYTES", p);
}

CublasGemm::~CublasGemm() {
  const GemmLibrary& lib = gemm_library();
  if (preference) lib.preference_destroy(preference);
  for (const cublasLtMatrixLayout_t layout : {first, second, result})
    if (layout) lib.layout_destroy(layout);
  if (operation) lib.desc_destroy(operation);
}

}  // namespace tessera::kernels::cuda
