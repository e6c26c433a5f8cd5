// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cuda/check.hpp"

#include <cuda_runtime.h>

#include <exception>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::cuda {

void check(int status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  const auto error = static_cast<cudaError_t>(status);
  const std::string what = strfmt("%s: %s (%s, %d)", call, cudaGetErrorString(error), cudaGetErrorName(error), status);
  const std::string where = strfmt("%s:%d", file, line);
  if (error == cudaErrorMemoryAllocation)
    throw Error(ExitCode::does_not_fit, what, where,
                "`tessera plan` shows what takes the memory; nvidia-smi shows who else uses the device");
  if (error == cudaErrorNoKernelImageForDevice)
    throw Error(ExitCode::usage, what, where,
                "This build has no code for the card: build with -DCMAKE_CUDA_ARCHITECTURES for it (docs/cuda.md)");
  throw Error(ExitCode::internal, what, where);
}

void check_quietly(int status, const char* call, const char* file, int line) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading) return;
  (void)cudaGetLastError();
  try {
    log::error_here(strfmt("%s: %s [%s:%d]", call, cudaGetErrorString(static_cast<cudaError_t>(status)), file, line));
  } catch (const std::exception&) {  // out of memory for the message
  }
}

}  // namespace tessera::cuda
