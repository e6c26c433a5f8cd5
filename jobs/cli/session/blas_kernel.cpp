// SPDX-License-Identifier: Apache-2.0
// OpenBLAS names its kernels by a CPU. It takes those of an old CPU where it does not know the model of the CPU.
#include "jobs/cli/session/blas_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

enum class Simd : unsigned char { unknown, sse, avx, avx2, avx512 };

Simd simd_of(std::string_view kernel) {
  using namespace std::string_view_literals;
  static constexpr std::array sse = {"Katmai"sv,       "Coppermine"sv, "Northwood"sv, "Prescott"sv,
                                     "Banias"sv,       "Atom"sv,       "Core2"sv,     "Penryn"sv,
                                     "Dunnington"sv,   "Nehalem"sv,    "Athlon"sv,    "Opteron"sv,
                                     "Opteron_SSE3"sv, "Barcelona"sv,  "Bobcat"sv,    "Nano"sv};
  static constexpr std::array avx = {"Sandybridge"sv, "Bulldozer"sv, "Piledriver"sv, "Steamroller"sv, "Excavator"sv};
  static constexpr std::array avx2 = {"Haswell"sv, "Zen"sv};
  static constexpr std::array avx512 = {"SkylakeX"sv, "Cooperlake"sv, "Sapphirerapids"sv};
  const auto is_in = [kernel](const auto& names) { return std::ranges::find(names, kernel) != names.end(); };
  return is_in(sse)      ? Simd::sse
         : is_in(avx)    ? Simd::avx
         : is_in(avx2)   ? Simd::avx2
         : is_in(avx512) ? Simd::avx512
                         : Simd::unknown;
}

}  // namespace

std::string better_blas_kernel(std::string_view kernel, kernels::Isa isa, std::string_view cpu_maker) {
  const Simd chosen = simd_of(kernel);
  if (chosen == Simd::unknown || isa == kernels::Isa::portable) return "";
  const bool avx512 = isa >= kernels::Isa::avx512 && cpu_maker == "Intel";
  if (chosen >= (avx512 ? Simd::avx512 : Simd::avx2)) return "";
  return avx512 ? "SkylakeX" : "Haswell";
}

namespace {

constexpr const char* coretype = "OPENBLAS_CORETYPE";
constexpr const char* own_choice = "OPENBLAS_CORETYPE_WITHOUT_TESSERA";

std::string better_for_this_process() {
  return better_blas_kernel(kernels::blas_kernel(), kernels::isa(), kernels::cpu_maker());
}

}  // namespace

bool set_better_blas_kernel() {
  if (std::getenv(coretype) != nullptr) return false;
  try {
    const std::string better = better_for_this_process();
    if (better.empty()) return false;
    ::setenv(own_choice, kernels::blas_kernel().c_str(), 1);
    ::setenv(coretype, better.c_str(), 1);
    return true;
  } catch (const Error&) {
    return false;  // TESSERA_ISA: the command says what is wrong
  }
}

void unset_better_blas_kernel() {
  ::unsetenv(own_choice);
  ::unsetenv(coretype);
}

std::string blas_kernel_finding() {
  const char* set = std::getenv(coretype);
  const char* own = std::getenv(own_choice);
  if (set != nullptr && own != nullptr)
    return strfmt(
        "OpenBLAS chooses its kernels for %s, and this CPU has %s: Tessera has set OPENBLAS_CORETYPE=%s, without which "
        "fp32 matrix products take a multiple of the time; set it yourself for other kernels",
        own, kernels::name_of(kernels::isa()), set);
  const std::string better = set == nullptr ? better_for_this_process() : "";
  if (better.empty()) return "";
  return strfmt(
      "OpenBLAS chose its kernels for %s, and this CPU has %s: fp32 matrix products take a multiple of the time; "
      "set OPENBLAS_CORETYPE=%s on every rank (mpirun -x OPENBLAS_CORETYPE=%s)",
      kernels::blas_kernel().c_str(), kernels::name_of(kernels::isa()), better.c_str(), better.c_str());
}

}  // namespace tessera::jobs
