// SPDX-License-Identifier: Apache-2.0
// Block-wise int8 of chunks, in any type: widened and rounded by pieces that stay in L1.
#include "kernels/int8_blocks.hpp"

#include <algorithm>
#include <array>

#include "kernels/host/convert.hpp"
#include "kernels/host/int8_blocks.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::size_t int8_piece = 16 * static_cast<std::size_t>(quantization_block);  // numbers cast at a time
using Int8Piece = std::array<float, int8_piece>;

void encode_chunk(const float* x, float* residual, std::byte* to, std::size_t count) {
  int8_blocks().encode(x, residual, reinterpret_cast<unsigned char*>(to), static_cast<std::int64_t>(count));
  const std::size_t bytes = int8_bytes(count);
  for (std::size_t unused = (4 - count % 4) % 4; unused > 0; --unused) to[bytes - unused] = std::byte{0};  // sent too
}

template <class T>
void encode_chunk(const T* x, float* residual, std::byte* to, std::size_t count) {
  Int8Piece wide;
  for (std::size_t first = 0; first < count; first += int8_piece) {
    const std::size_t now = std::min(int8_piece, count - first);
    convert().widen(x + first, wide.data(), static_cast<std::int64_t>(now));
    encode_chunk(wide.data(), residual != nullptr ? residual + first : nullptr, to + int8_bytes(first), now);
  }
}

void decode_chunk(const std::byte* from, float* to, std::size_t count) {
  int8_blocks().decode(reinterpret_cast<const unsigned char*>(from), to, static_cast<std::int64_t>(count));
}

template <class T>
void decode_chunk(const std::byte* from, T* to, std::size_t count) {
  Int8Piece wide;
  for (std::size_t first = 0; first < count; first += int8_piece) {
    const std::size_t now = std::min(int8_piece, count - first);
    decode_chunk(from + int8_bytes(first), wide.data(), now);
    convert().narrow(wide.data(), to + first, static_cast<std::int64_t>(now));
  }
}

template <class T>
void encode_chunks(const EncodeInt8Args& args) {
  const auto* const x = static_cast<const T*>(args.x);
  for (std::size_t c = 0; c < args.chunks; ++c)
    encode_chunk(x + c * args.count, args.residual != nullptr ? args.residual + c * args.count : nullptr,
                 args.to + c * int8_bytes(args.count), args.count);
}

template <class T>
void decode_chunks(const DecodeInt8Args& args) {
  for (std::size_t c = 0; c < args.chunks; ++c)
    decode_chunk(args.from + c * int8_bytes(args.count), static_cast<T*>(args.to) + c * args.count, args.count);
}

}  // namespace

void encode_int8(const EncodeInt8Args& args) {
  if (args.dtype == DType::f32) encode_chunks<float>(args);
  else if (args.dtype == DType::bf16) encode_chunks<bf16>(args);
  else encode_chunks<f16>(args);
}

void decode_int8(const DecodeInt8Args& args) {
  if (args.dtype == DType::f32) decode_chunks<float>(args);
  else if (args.dtype == DType::bf16) decode_chunks<bf16>(args);
  else decode_chunks<f16>(args);
}

}  // namespace tessera::kernels::host
