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

/// What to say about the kernels that this process's OpenBLAS chose; "" if they suit the CPU, or if OPENBLAS_CORETYPE
/// is set: then somebody chose them.
[[nodiscard]] std::string blas_kernel_finding();

}  // namespace tessera::jobs
