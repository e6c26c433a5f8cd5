// SPDX-License-Identifier: Apache-2.0
#pragma once
// TESSERA_HD: an inline function for host and device. Plain C++ outside nvcc, so that such functions are tested on the
// CPU.

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__ __forceinline__
#else
#define TESSERA_HD inline
#endif
