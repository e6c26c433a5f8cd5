// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/int8_collectives.hpp"

#include <algorithm>
#include <array>

#include "kernels/convert.hpp"
#include "kernels/int8_blocks.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/sum_to_f32.hpp"
#include "runtime/comm/topology.hpp"

namespace tessera::comm {
namespace {

constexpr std::size_t int8_piece = 16 * kernels::quantization_block;  // numbers cast at a time

void encode(SourceBuffer from, std::byte* to, std::size_t count) {
  if (from.dtype == DType::f32)
    return kernels::encode_int8({.x = static_cast<const float*>(from.data), .to = to, .count = count});
  std::array<float, int8_piece> wide;
  for (std::size_t first = 0; first < count; first += int8_piece) {
    const std::size_t now = std::min(int8_piece, count - first);
    widen(from.from(first), wide.data(), now);
    kernels::encode_int8({.x = wide.data(), .to = to + kernels::int8_bytes(first), .count = now});
  }
}

void decode(const std::byte* from, std::byte* to, DType dtype, std::size_t count) {
  if (dtype == DType::f32) return kernels::decode_int8(from, reinterpret_cast<float*>(to), count);
  std::array<float, int8_piece> wide;
  for (std::size_t first = 0; first < count; first += int8_piece) {
    const Shape now{static_cast<std::int64_t>(std::min(int8_piece, count - first))};
    kernels::decode_int8(from + kernels::int8_bytes(first), wide.data(), static_cast<std::size_t>(now.numel()));
    kernels::convert_serial({.from = {wide.data(), now}, .to = {to + first * size_of(dtype), dtype, now}}, host_stream);
  }
}

/// This member's chunk of the sum. Staging: pointers to what is received, what is sent, what is received.
void sum_chunk(Communicator& communicator, CollectiveLabel label, const float* full, float* mine, std::size_t chunk,
               float* residual, std::span<std::byte> staging) {
  const auto members = static_cast<std::size_t>(communicator.size());
  const std::size_t bytes = kernels::int8_bytes(chunk);
  TESSERA_ASSERT(communicator.device() == host_device, "int8 collectives are of host memory");
  TESSERA_ASSERT(staging.size() >= int8_sum_staging(members, chunk), "%zu bytes of staging", staging.size());
  const std::span<const void*> parts(reinterpret_cast<const void**>(staging.data()), members);
  std::byte *const sent = staging.data() + parts.size_bytes(), *const received = sent + members * bytes;
  for (std::size_t i = 0; i < members; ++i)
    kernels::encode_int8({.x = full + i * chunk,
                          .to = sent + i * bytes,
                          .count = chunk,
                          .residual = residual != nullptr ? residual + i * chunk : nullptr});
  communicator.all_to_all(label, sent, received, bytes);
  for (std::size_t i = 0; i < members; ++i) parts[i] = received + i * bytes;
  kernels::sum_tree_int8({.parts = parts, .out = mine, .count = chunk});
}

}  // namespace

std::size_t int8_group_bytes(std::size_t members, std::size_t chunk) { return members * kernels::int8_bytes(chunk); }

std::size_t int8_sum_staging(std::size_t members, std::size_t chunk) {
  return members * sizeof(const void*) + 2 * int8_group_bytes(members, chunk);
}

std::size_t int8_gather_staging(std::size_t members, std::size_t chunk) { return int8_group_bytes(members, chunk); }

void int8_reduce_scatter(Communicator& communicator, CollectiveLabel label, const float* full, float* mine,
                         std::size_t chunk, float* residual, std::span<std::byte> staging) {
  sum_chunk(communicator, label, full, mine, chunk, residual, staging);
}

void int8_all_reduce(Communicator& communicator, CollectiveLabel label, const float* source, float* sums,
                     std::size_t count, float* residual, std::span<std::byte> staging) {
  const auto members = static_cast<std::size_t>(communicator.size()),
             me = static_cast<std::size_t>(communicator.rank());
  TESSERA_ASSERT(count % members == 0, "%zu elements over %zu members", count, members);
  const std::size_t chunk = count / members, bytes = kernels::int8_bytes(chunk);
  float* const own = sums + me * chunk;
  sum_chunk(communicator, label, source, own, chunk, residual, staging);
  std::byte* const gathered = staging.data();
  kernels::encode_int8({.x = own,
                        .to = gathered + me * bytes,
                        .count = chunk,
                        .residual = residual != nullptr ? residual + me * chunk : nullptr});
  communicator.all_gather(label, gathered + me * bytes, gathered, bytes);
  for (std::size_t i = 0; i < members; ++i) kernels::decode_int8(gathered + i * bytes, sums + i * chunk, chunk);
}

void int8_all_gather(Communicator& communicator, CollectiveLabel label, SourceBuffer mine, std::byte* full, DType dtype,
                     std::size_t chunk, std::span<std::byte> staging) {
  const auto members = static_cast<std::size_t>(communicator.size()),
             me = static_cast<std::size_t>(communicator.rank());
  const std::size_t bytes = kernels::int8_bytes(chunk);
  TESSERA_ASSERT(communicator.device() == host_device, "int8 collectives are of host memory");
  TESSERA_ASSERT(staging.size() >= int8_gather_staging(members, chunk), "%zu bytes of staging", staging.size());
  std::byte* const own = staging.data() + me * bytes;
  encode(mine, own, chunk);
  communicator.all_gather(label, own, staging.data(), bytes);
  for (std::size_t i = 0; i < members; ++i)
    decode(staging.data() + i * bytes, full + i * chunk * size_of(dtype), dtype, chunk);
}

}  // namespace tessera::comm
