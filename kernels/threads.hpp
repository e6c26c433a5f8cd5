// SPDX-License-Identifier: Apache-2.0
#pragma once
// The number of threads that a rank computes with, and the instruction set of its kernels.

#include <cstdint>
#include <string>

#include "runtime/base/dtype.hpp"

namespace tessera::kernels {

/// Sets the threads of every kernel, at least 1. CBLAS itself runs on one thread: kernels tile above it.
void set_threads(int threads);
[[nodiscard]] int threads();

/// avx512_bf16: AVX-512 with instructions that round to bf16 and multiply bf16 (AVX512-BF16).
enum class Isa : unsigned char { portable, avx2, avx512, avx512_bf16 };
inline constexpr Isa all_isas[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16};
[[nodiscard]] const char* name_of(Isa isa);
/// The best that this CPU and this build have, or the one that TESSERA_ISA names; chosen once.
/// Throws Error (usage) if it is missing.
[[nodiscard]] Isa isa();
/// For tests; throws Error (usage) if the CPU or the build lacks it.
void set_isa(Isa isa);
/// "AMD", "Intel" or "another maker": GELU and SwiGLU in 16 bits use an instruction that makers implement differently.
[[nodiscard]] const char* cpu_maker();
/// "OpenBLAS 0.3.21 serial, kernel Zen", as far as the library reports it.
[[nodiscard]] std::string blas_version();
/// The CPU whose kernels OpenBLAS uses, by its name for it ("Zen"); "" if another library is loaded.
[[nodiscard]] std::string blas_kernel();

/// A GEMM (kernels/gemm.hpp) of small numbers, not zeros.
struct MeasuredGemm {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::f32;  // f32, bf16
  bool trans_a = false, trans_b = false;
  bool fp32_result = false;  // of 16-bit operands
  friend bool operator==(const MeasuredGemm&, const MeasuredGemm&) = default;
};
/// GFLOP/s with this rank's threads: the best of `repeats`.
[[nodiscard]] double measure_gemm(const MeasuredGemm& of, int repeats);

/// How GEMMs of a 16-bit type are computed on this CPU.
struct Gemm16Bit {
  /// "oneDNN 2.6.3 brg:avx512_core_amx_bf16" (oneDNN's name of what it chooses), or "up-cast": panels widened to fp32,
  /// then register tiles of fp32.
  std::string name;
  /// Why oneDNN is not used: "no oneDNN: the instruction set in use is not avx512_bf16"; empty: it is used.
  std::string skipped;
};
/// bf16 or f16.
[[nodiscard]] Gemm16Bit gemm_16bit(DType dtype);

}  // namespace tessera::kernels
