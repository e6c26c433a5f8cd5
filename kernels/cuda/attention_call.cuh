// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arguments of attention's kernels, and their launchers. Only for .cu files.

#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

template <class T>
struct AttentionCall {
  HeadMap map;
  float scale;
  const std::int32_t* positions;  // (B, T), or null
  const T* qkv;
  T* out = nullptr;              // written by forward, read by backward
  float* lse = nullptr;          // (B, nh, T); null in forward: not written
  const T* dout = nullptr;       // backward only, from here on
  const float* delta = nullptr;  // (B, nh, T) Σ over a row of dout·out
  T* dqkv = nullptr;
  bool vectors = false;  // every row of a head is aligned to 16 bytes
};

inline constexpr float log2_e = 1.44269504088896340736F;

/// Tensor cores, bf16 and fp16, head_dim up to 256.
template <class T>
void launch_tensor_forward(const AttentionCall<T>& call, cudaStream_t stream);
template <class T>
void launch_tensor_backward(const AttentionCall<T>& call, cudaStream_t stream);
/// fp32 without tensor cores, head_dim up to 256.
void launch_plain_forward(const AttentionCall<float>& call, cudaStream_t stream);
void launch_plain_backward(const AttentionCall<float>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
