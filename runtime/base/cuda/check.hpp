// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checked calls of the CUDA runtime. Statuses are passed as int, so that cuda_runtime.h stays out of headers.

namespace tessera::cuda {

/// Throws Error unless `status` (a cudaError_t) is success: does_not_fit for out of memory, else internal; with call,
/// file, line and CUDA's message. Clears a non-sticky error.
void check(int status, const char* call, const char* file, int line);

/// The same for destructors: prints a warning in place of throwing; silent while the process ends.
void check_quietly(int status, const char* call, const char* file, int line) noexcept;

}  // namespace tessera::cuda

#define TESSERA_CUDA(call) ::tessera::cuda::check(static_cast<int>(call), #call, __FILE__, __LINE__)
#define TESSERA_CUDA_QUIETLY(call) ::tessera::cuda::check_quietly(static_cast<int>(call), #call, __FILE__, __LINE__)
