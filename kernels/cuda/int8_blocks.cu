// SPDX-License-Identifier: Apache-2.0
// Block-wise int8 on a device: a warp takes a block of numbers, a thread every 32nd of them.
#include "kernels/int8_blocks.hpp"

#include "kernels/cuda/binary_counter.cuh"
#include "kernels/cuda/int8_blocks.hpp"
#include "kernels/cuda/int8_code.hpp"
#include "kernels/cuda/vector.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int int8_warps = 8, block = static_cast<int>(quantization_block), per_lane = block / 32;
constexpr std::int64_t block_bytes = block + static_cast<std::int64_t>(sizeof(float));

/// Chunks of `count` numbers, one after the other, and of encoded bytes.
struct Chunks {
  std::int64_t count, chunks, blocks, bytes;  // blocks and bytes of a chunk
};

Chunks chunks_of(std::size_t count, std::size_t chunks) {
  const auto n = static_cast<std::int64_t>(count);
  return {n, static_cast<std::int64_t>(chunks), (n + block - 1) / block, static_cast<std::int64_t>(int8_bytes(count))};
}

/// The block of this warp.
struct Int8Block {
  std::int64_t first;  // number, of all chunks
  std::int64_t byte;   // of its scale
  int numbers;         // in it, at most `block`; 0: there is none
  int padding;         // bytes after the last code
};

__device__ __forceinline__ Int8Block block_of_warp(const Chunks& of) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * int8_warps + threadIdx.x / 32;
  const std::int64_t chunk = index / of.blocks, begin = index % of.blocks * block;
  if (chunk >= of.chunks) return {0, 0, 0, 0};
  const std::int64_t rest = of.count - begin;
  const int numbers = rest < block ? static_cast<int>(rest) : block;
  return {chunk * of.count + begin, chunk * of.bytes + index % of.blocks * block_bytes, numbers, (4 - numbers % 4) % 4};
}

template <class T>
__global__ void __launch_bounds__(32 * int8_warps)
    encode_int8_kernel(const T* x, float* residual, unsigned char* to, const Chunks of) {
  const Int8Block at = block_of_warp(of);
  if (at.numbers == 0) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum[per_lane];
  unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < per_lane; ++k) {
    const int i = lane + 32 * k;
    sum[k] = 0;
    if (i >= at.numbers) continue;
    sum[k] = to_float(x[at.first + i]);
    if (residual != nullptr) sum[k] = add(sum[k], residual[at.first + i]);
    largest = max(largest, magnitude_bits(sum[k]));
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, width));
  const Int8Scale scale = int8_scale(largest);
  unsigned char* const codes = to + at.byte + sizeof(float);
  if (lane == 0) *reinterpret_cast<float*>(to + at.byte) = scale.scale;
  if (lane < at.padding) codes[at.numbers + lane] = 0;
#pragma unroll
  for (int k = 0; k < per_lane; ++k) {
    const int i = lane + 32 * k;
    if (i >= at.numbers) continue;
    const Int8Code coded = scale.finite ? int8_code(sum[k], scale.scale) : Int8Code{0, 0.0F};
    codes[i] = static_cast<unsigned char>(coded.code);
    if (residual != nullptr && scale.finite) residual[at.first + i] = coded.rest;
  }
}

template <class T>
__global__ void __launch_bounds__(32 * int8_warps)
    decode_int8_kernel(const unsigned char* from, T* to, const Chunks of) {
  const Int8Block at = block_of_warp(of);
  const float scale = at.numbers > 0 ? *reinterpret_cast<const float*>(from + at.byte) : 0.0F;
  const auto* const codes = reinterpret_cast<const std::int8_t*>(from + at.byte + sizeof(float));
#pragma unroll
  for (int k = 0; k < per_lane; ++k) {
    const int i = static_cast<int>(threadIdx.x) % 32 + 32 * k;
    if (i < at.numbers) to[at.first + i] = rounded<T>(int8_value(codes[i], scale));
  }
}

/// One thread adds four numbers, whose codes are of one block; bytes after the last code are of no number.
template <int Levels>
__global__ void __launch_bounds__(256)
    sum_tree_int8_kernel(const unsigned char* parts, int number, float* out, const Chunks of) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * 4;
  if (at >= of.count) return;
  const unsigned char* const from = parts + at / block * block_bytes;
  float sum[4];
  binary_counter_sum<4, Levels>(number, sum, [&](int part, float(&v)[4]) {
    const unsigned char* const encoded = from + part * of.bytes;
    const float scale = *reinterpret_cast<const float*>(encoded);
    const char4 codes = *reinterpret_cast<const char4*>(encoded + sizeof(float) + at % block);
    v[0] = int8_value(codes.x, scale);
    v[1] = int8_value(codes.y, scale);
    v[2] = int8_value(codes.z, scale);
    v[3] = int8_value(codes.w, scale);
  });
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (at + k < of.count) out[at + k] = sum[k];
}

}  // namespace

void encode_int8(const EncodeInt8Args& args, StreamView stream) {
  const Chunks of = chunks_of(args.count, args.chunks);
  if (of.blocks * of.chunks == 0) return;
  dispatch_dtype(args.dtype, [&]<class T>(T) {
    encode_int8_kernel<T><<<blocks_for(of.blocks * of.chunks, int8_warps), 32 * int8_warps, 0, stream_of(stream)>>>(
        static_cast<const T*>(args.x), args.residual, reinterpret_cast<unsigned char*>(args.to), of);
    check_launch("encode_int8");
  });
}

void decode_int8(const DecodeInt8Args& args, StreamView stream) {
  const Chunks of = chunks_of(args.count, args.chunks);
  if (of.blocks * of.chunks == 0) return;
  dispatch_dtype(args.dtype, [&]<class T>(T) {
    decode_int8_kernel<T><<<blocks_for(of.blocks * of.chunks, int8_warps), 32 * int8_warps, 0, stream_of(stream)>>>(
        reinterpret_cast<const unsigned char*>(args.from), static_cast<T*>(args.to), of);
    check_launch("decode_int8");
  });
}

void sum_tree_int8(const SumTreeInt8Args& args, StreamView stream) {
  if (args.count == 0) return;
  const Chunks of = chunks_of(args.count, args.number);
  const auto* const parts = reinterpret_cast<const unsigned char*>(args.parts);
  const auto number = static_cast<int>(args.number);
  const unsigned blocks = blocks_for(of.count, 4 * 256);
  if (number <= 256) sum_tree_int8_kernel<9><<<blocks, 256, 0, stream_of(stream)>>>(parts, number, args.out, of);
  else sum_tree_int8_kernel<21><<<blocks, 256, 0, stream_of(stream)>>>(parts, number, args.out, of);
  check_launch("sum_tree_int8");
}

}  // namespace tessera::kernels::cuda
