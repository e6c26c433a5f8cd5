// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every launch needs: the CUDA stream of a view, the check of the launch, the element type, grids. Only for .cu
// files.

#include "kernels/cuda/element.hpp"
#include "runtime/base/cuda/check.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::kernels::cuda {

inline cudaStream_t stream_of(StreamView stream) {
  TESSERA_ASSERT(stream.handle != nullptr, "a device kernel on the host's stream");
  return static_cast<cudaStream_t>(stream.handle);
}

/// Checks a call of the CUDA runtime.
inline void check(cudaError_t status, const char* what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  ::tessera::cuda::check(static_cast<int>(status), what, file, line);
}
/// After every launch: an invalid launch is reported here, not by a later call.
inline void check_launch(const char* kernel, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  check(cudaGetLastError(), kernel, file, line);
}

/// Calls f with a value of the element type: float, bf16 or f16. Asserts on others: devices compute no fp64.
template <class F>
void dispatch_dtype(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    default: TESSERA_ASSERT(false, "no device kernel for %s", name_of(dtype));
  }
}
/// Calls f with the type of a gradient of elements of T: T itself, or fp32.
template <class T, class F>
void dispatch_gradient_dtype(DType dtype, const F& f) {
  if (dtype == DType::f32) return f(float{});
  if constexpr (sizeof(T) == 2) {
    TESSERA_ASSERT(dtype == dtype_of<T>::value, "gradients of %s in %s", name_of(dtype_of<T>::value), name_of(dtype));
    return f(T{});
  } else {
    TESSERA_ASSERT(false, "gradients of fp32 in %s", name_of(dtype));
  }
}
/// The view's bytes as T; the caller has checked the dtype.
template <class T>
T* data_of(const TensorView& view) {
  return static_cast<T*>(view.data);
}

/// Number of blocks of `per_block` that cover n.
inline unsigned blocks_for(std::int64_t n, std::int64_t per_block) {
  const std::int64_t blocks = (n + per_block - 1) / per_block;
  TESSERA_ASSERT(blocks < (std::int64_t{1} << 31), "%ld blocks", blocks);
  return static_cast<unsigned>(blocks);
}

/// Shared memory that a block can have on every GPU of sm_80 and newer: 99 KB on sm_86, 89 and 120 (CUDA C++
/// Programming Guide, "Compute Capabilities").
inline constexpr std::size_t least_shared_bytes = 99 * 1024;

/// Shared memory beyond 48 KB must be requested once per kernel and device; a repeated request costs a microsecond.
template <class Kernel>
void allow_shared(Kernel kernel, std::size_t bytes) {
  TESSERA_ASSERT(bytes <= least_shared_bytes, "%zu bytes of shared memory", bytes);
  if (bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "shared memory of a kernel");
}

inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace tessera::kernels::cuda
