// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arguments of attention's kernels, and their launchers. Only for .cu files.

#include "kernels/cuda/mma.cuh"

namespace tessera::kernels::cuda {

inline constexpr float log2_e = 1.44269504088896340736F;

/// A score s = scale·(q·k) becomes cap·t with t = tanh(s / cap), whose slope is 1 - t².
struct SoftCap {
  float cap = 0, factor = 0;  // 0: none; 2·log2(e)·scale / cap
  SoftCap() = default;
  SoftCap(double cap_, double scale)
      : cap(static_cast<float>(cap_)), factor(static_cast<float>(cap_ > 0 ? 2 * double{log2_e} * scale / cap_ : 0)) {}
  /// t of q·k: tanh |x| = (1 - e)/(1 + e) with e = exp(-2|x|), within 1e-7. tanhf() takes more registers than there
  /// are.
  __device__ __forceinline__ float tanh(float dot) const {
    const float x = dot * factor, e = exp2f(-fabsf(x));
    return copysignf((1.0F - e) * fast_reciprocal(1.0F + e), x);
  }
  __device__ __forceinline__ float score(float dot) const { return cap * tanh(dot); }
};

template <class T>
struct AttentionCall {
  HeadMap map;
  float scale;
  SoftCap soft_cap;
  const std::int32_t* positions;  // (B, keys), or null
  const T* sinks;                 // (nh), or null
  HeadRowsOf<const T> q, k, v;
  T* out = nullptr;              // written by forward, read by backward
  float* lse = nullptr;          // (B, nh, T); null in forward: not written
  const T* dout = nullptr;       // backward only, from here on
  const float* delta = nullptr;  // (B, nh, T) Σ over a row of dout·out
  HeadRowsOf<T> dq{}, dk{}, dv{};
  bool vectors = false;  // every row of a head is aligned to 16 bytes
  /// Whether a query may see a key later than the first.
  TESSERA_HD bool has_first() const { return positions != nullptr || map.window > 0; }
};

/// The rows of a head of a call's queries, keys or values, for load_tile.
template <class T>
__device__ __forceinline__ RowsOf<T> rows_of(const AttentionCall<T>& c, const HeadRowsOf<const T>& of, std::int64_t b,
                                             std::int64_t head) {
  return {of.row(b, head, 0), of.pitch, of.tokens, static_cast<int>(c.map.head_dim), c.vectors};
}

/// Tensor cores, bf16 and fp16, head_dim up to 256.
template <class T>
void launch_tensor_forward(const AttentionCall<T>& call, cudaStream_t stream);
template <class T>
void launch_tensor_backward(const AttentionCall<T>& call, cudaStream_t stream);
/// fp32 without tensor cores, head_dim up to 256.
void launch_plain_forward(const AttentionCall<float>& call, cudaStream_t stream);
void launch_plain_backward(const AttentionCall<float>& call, cudaStream_t stream);

}  // namespace tessera::kernels::cuda
