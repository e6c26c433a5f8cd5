#pragma once
// How many threads a rank computes with, and which instruction set its kernels use.

#include <cstdint>
#include <string>

namespace tessera::kernels {

/// Threads of every kernel from now on, at least 1 (OpenMP's and ours). CBLAS itself is kept at one: we tile above it.
void set_threads(int threads);
[[nodiscard]] int threads();

enum class Isa : unsigned char { portable, avx2, avx512 };
[[nodiscard]] const char* name_of(Isa isa);
/// The best that this CPU and this build have, or what TESSERA_ISA=portable|avx2|avx512 asks for; chosen
/// once. Error (usage): there is none.
[[nodiscard]] Isa isa();
/// For tests; throws Error (usage) if the CPU or the build lacks it.
void set_isa(Isa isa);
/// "OpenBLAS 0.3.21 serial, kernel Zen" as far as the library tells.
[[nodiscard]] std::string blas_version();

/// GFLOP/s of sgemm on this rank's threads: best of `repeats` at m×n×k. About 2·m·n·k·repeats FLOPs of time.
[[nodiscard]] double measure_sgemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats);
/// The same of bf16, C included.
[[nodiscard]] double measure_bf16_gemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats);
/// How bf16 is multiplied here.
struct Bf16Gemm {
  /// "amx-bf16" (by tdpbf16ps), "avx512-bf16" (by vdpbf16ps), or "up-cast" (panels widened to fp32,
  /// then register tiles of fp32).
  std::string name;
  /// "no amx-bf16: the CPU lacks it", and so on: the better ones, and why they are not taken.
  std::string skipped;
};
/// The first call proves the instruction that the CPU has, and warns (W030) where it fails: see host/pair_choice.hpp.
[[nodiscard]] Bf16Gemm bf16_gemm();

}  // namespace tessera::kernels
