// SPDX-License-Identifier: Apache-2.0
#pragma once
// GEMM of bf16 or f16 by oneDNN on the calling thread alone. Not a public op (kernels/gemm.hpp).

#include <cstddef>
#include <string>

#include "kernels/host/half_gemm.hpp"

namespace tessera::kernels::host {

/// What oneDNN multiplies numbers of T with on this CPU.
struct OneDnn {
  /// "oneDNN 2.6.3 brg:avx512_core_amx_bf16"; empty: oneDNN is not used.
  std::string name;
  /// Why it is not used: "the CPU has no AVX512-BF16"; empty: it is used.
  std::string missing;
};
/// For the instruction set in use (kernels::isa()): none but avx512_bf16 uses oneDNN. The first call of each T asks
/// oneDNN, which respects ONEDNN_MAX_CPU_ISA.
template <class T>
[[nodiscard]] const OneDnn& onednn();

/// Computes the product if oneDNN is used for T and can do it; false: nothing was written. `scratch` is aligned to 64
/// bytes.
///
/// The calling thread keeps the primitives of its last 256 shapes; a new shape costs 0.2 to 0.5 ms. Products of
/// `rows_vary`, and those of transposed A with fp32 C, use primitives that fit every shape. Which primitive is used
/// depends on the arguments alone, not on earlier calls.
template <class T, class G>
[[nodiscard]] bool onednn_gemm(const HalfProduct<T, G>& product, std::byte* scratch, std::size_t scratch_bytes);

}  // namespace tessera::kernels::host
