// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/int8_collectives.hpp"

#include "kernels/int8_blocks.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/topology.hpp"

namespace tessera::comm {
namespace {

/// This member's chunk of the sum. Staging: what is sent, what is received.
void sum_chunk(Communicator& communicator, CollectiveLabel label, const float* full, float* mine, std::size_t chunk,
               float* residual, std::span<std::byte> staging, StreamView stream) {
  const auto members = static_cast<std::size_t>(communicator.size());
  const std::size_t bytes = kernels::int8_bytes(chunk);
  TESSERA_ASSERT(staging.size() >= int8_sum_staging(members, chunk), "%zu bytes of staging", staging.size());
  communicator.run_on(stream);
  std::byte *const sent = staging.data(), *const received = sent + members * bytes;
  kernels::encode_int8({.x = full, .to = sent, .count = chunk, .chunks = members, .residual = residual}, stream);
  communicator.all_to_all(label, sent, received, bytes);
  kernels::sum_tree_int8({.parts = received, .number = members, .out = mine, .count = chunk}, stream);
}

}  // namespace

std::size_t int8_group_bytes(std::size_t members, std::size_t chunk) { return members * kernels::int8_bytes(chunk); }

std::size_t int8_sum_staging(std::size_t members, std::size_t chunk) { return 2 * int8_group_bytes(members, chunk); }

std::size_t int8_gather_staging(std::size_t members, std::size_t chunk) { return int8_group_bytes(members, chunk); }

void int8_reduce_scatter(Communicator& communicator, CollectiveLabel label, const float* full, float* mine,
                         std::size_t chunk, float* residual, std::span<std::byte> staging, StreamView stream) {
  sum_chunk(communicator, label, full, mine, chunk, residual, staging, stream);
}

void int8_all_reduce(Communicator& communicator, CollectiveLabel label, const float* source, float* sums,
                     std::size_t count, float* residual, std::span<std::byte> staging, StreamView stream) {
  const auto members = static_cast<std::size_t>(communicator.size()),
             me = static_cast<std::size_t>(communicator.rank());
  TESSERA_ASSERT(count % members == 0, "%zu elements over %zu members", count, members);
  const std::size_t chunk = count / members, bytes = kernels::int8_bytes(chunk);
  float* const own = sums + me * chunk;
  sum_chunk(communicator, label, source, own, chunk, residual, staging, stream);
  std::byte* const gathered = staging.data();
  kernels::encode_int8({.x = own,
                        .to = gathered + me * bytes,
                        .count = chunk,
                        .residual = residual != nullptr ? residual + me * chunk : nullptr},
                       stream);
  communicator.all_gather(label, gathered + me * bytes, gathered, bytes);
  kernels::decode_int8({.from = gathered, .to = sums, .count = chunk, .chunks = members}, stream);
}

void int8_all_gather(Communicator& communicator, CollectiveLabel label, SourceBuffer mine, std::byte* full, DType dtype,
                     std::size_t chunk, std::span<std::byte> staging, StreamView stream) {
  const auto members = static_cast<std::size_t>(communicator.size()),
             me = static_cast<std::size_t>(communicator.rank());
  TESSERA_ASSERT(staging.size() >= int8_gather_staging(members, chunk), "%zu bytes of staging", staging.size());
  communicator.run_on(stream);
  std::byte* const own = staging.data() + me * kernels::int8_bytes(chunk);
  kernels::encode_int8({.x = mine.data, .dtype = mine.dtype, .to = own, .count = chunk}, stream);
  communicator.all_gather(label, own, staging.data(), kernels::int8_bytes(chunk));
  kernels::decode_int8({.from = staging.data(), .to = full, .dtype = dtype, .count = chunk, .chunks = members}, stream);
}

}  // namespace tessera::comm
