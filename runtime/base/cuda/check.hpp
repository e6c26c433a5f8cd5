#pragma once
// Checked calls of the CUDA runtime. Statuses travel as int, so that cuda_runtime.h stays in the source files.

namespace tessera::cuda {

/// Throws Error unless `status` (a cudaError_t) is success: does_not_fit for memory that ran out, internal for the
/// rest; with the call, its place and CUDA's own words. Clears an error that does not stick.
void check(int status, const char* call, const char* file, int line);

/// The same for destructors: never throws; what goes wrong after main() is nobody's business, the rest is one warning.
void check_quietly(int status, const char* call, const char* file, int line) noexcept;

}  // namespace tessera::cuda

#define TESSERA_CUDA(call) ::tessera::cuda::check(static_cast<int>(call), #call, __FILE__, __LINE__)
#define TESSERA_CUDA_QUIETLY(call) ::tessera::cuda::check_quietly(static_cast<int>(call), #call, __FILE__, __LINE__)
