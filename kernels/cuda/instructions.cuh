// SPDX-License-Identifier: Apache-2.0
#pragma once
// Instructions of sm_80 and newer that CUDA C++ has no function for, one function each. Only for .cu files. Tests
// without a device replace this file (tests/simulated_device/instructions.cuh).

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += a·b, 16×8, depth 16.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats rounded to T in one register, the first in the lower bits.
template <class T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  std::uint32_t r;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

/// 1/x within 1 ulp, of a normal x.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 16 bytes of global memory that nobody writes meanwhile and this multiprocessor reads once: not kept in L1.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

/// Copies 16 bytes from global to shared memory (cp.async); zeros if not `valid`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Groups` of this thread's groups of copies are pending.
template <int Groups>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

// Programmatic dependent launch (CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; sm_90
// and newer, else nothing): a kernel's blocks are launched while those of the kernel before it on the stream end.

/// First in every kernel of launch_dependent: waits until the kernel before it has ended and its results are visible,
/// and lets the next be launched, which waits for this one in turn. Without such a launch it does nothing.
__device__ __forceinline__ void await_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Rows up to which kernels that training uses too are launched early: those of decode passes.
inline constexpr std::int64_t most_early_rows = 16;
struct LaunchShape {
  dim3 blocks;
  unsigned threads;
  cudaStream_t stream;
  const char* name;  // for errors
};
/// kernel<<<blocks, threads, 0, stream>>>(args…), launched early. For chains of kernels of a few microseconds.
template <class... Params, class... Args>
void launch_dependent(void (*kernel)(Params...), const LaunchShape& shape, const Args&... args) {
  constexpr int captured_since = 12030;  // CUDA 12.3: older drivers do not capture such launches
  int device = 0, major = 0, driver = 0;
  check(cudaDriverGetVersion(&driver), shape.name);
  check(cudaGetDevice(&device), shape.name);
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), shape.name);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(shape.threads);
  config.stream = shape.stream;
  config.attrs = &early;
  config.numAttrs = major >= 9 && driver >= captured_since ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, args...), shape.name);
}

}  // namespace tessera::kernels::cuda
