// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether OpenBLAS chose kernels that the CPU deserves.

#include <string>
#include <string_view>

#include "kernels/threads.hpp"

namespace tessera::jobs {

/// The value of OPENBLAS_CORETYPE that makes fp32 GEMMs faster: "Haswell" for kernels below AVX2 on a CPU with AVX2,
/// "SkylakeX" for any below AVX-512 on a CPU of Intel with AVX-512 (others multiply as fast with AVX2). "" if the
/// kernels suit the CPU, or `kernel` (as OpenBLAS names it) is not known.
[[nodiscard]] std::string better_blas_kernel(std::string_view kernel, kernels::Isa isa, std::string_view cpu_maker);

/// Sets OPENBLAS_CORETYPE to better kernels than OpenBLAS has chosen, and returns whether it did: not if they suit the
/// CPU, nor if it is set already. OpenBLAS reads it as it is loaded: the program is to be started again.
/// OPENBLAS_CORETYPE_WITHOUT_TESSERA then has OpenBLAS' own choice.
bool set_better_blas_kernel();

/// Takes back what set_better_blas_kernel() has set.
void unset_better_blas_kernel();

/// What to say about the kernels of this process's OpenBLAS: that they are too old for the CPU, or that they would be
/// if set_better_blas_kernel() had not set others. "" if its own choice suits the CPU, or somebody else set
/// OPENBLAS_CORETYPE.
[[nodiscard]] std::string blas_kernel_finding();

}  // namespace tessera::jobs
